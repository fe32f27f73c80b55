"""What every peer needs: to be started, measured and asked, and ElasticDL's pserver to be talked to."""

import ast
import json
import os
import socket
import subprocess
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

# Keys or whatever else changes from one call to the next is used in turn.
SETS = 16
RATE = 0.05
LOOPBACK = "127.0.0.1"
# ElasticDL's pserver ends where it finds no Kubernetes. A token that nobody takes, in a mount namespace of its own, and a
# cluster that does not answer are enough for it to go on.
ACCOUNT = "/run/secrets/kubernetes.io/serviceaccount"
POD = f'mount -t tmpfs none /run && mkdir -p {ACCOUNT} && echo none > {ACCOUNT}/token && exec "$@"'
CLUSTER = {"KUBERNETES_SERVICE_HOST": LOOPBACK, "KUBERNETES_SERVICE_PORT": "1"}


# What ends what was started, also of peers that then could not be reached.
endings = []


def start(command, **options):
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "stdin": subprocess.DEVNULL}
    process = subprocess.Popen(command, **quiet, **options)
    endings.append(process.kill)
    return process


def free_port():
    with socket.socket() as listener:
        listener.bind((LOOPBACK, 0))
        return listener.getsockname()[1]


def described(path):
    """The descriptor in a module that protoc wrote, which today's protobuf would not import."""
    for node in ast.walk(ast.parse(open(path).read())):
        if isinstance(node, ast.keyword) and node.arg == "serialized_pb":
            return ast.literal_eval(node.value)
    raise ValueError(f"{path} has no descriptor")


class ElasticDlServer:
    """The Go pserver of ElasticDL's wheel, over gRPC, asynchronous as its jobs are."""

    def __init__(self, options):
        import grpc
        import numpy
        from concurrent import futures
        from google.protobuf import descriptor_pool, message_factory
        from tensorflow.core.framework import types_pb2

        package = os.path.join(options.wheel, "elasticdl")
        pool = descriptor_pool.Default()
        pool.AddSerializedFile(described(os.path.join(package, "proto", "elasticdl_pb2.py")))
        self.message = lambda name: message_factory.GetMessageClass(pool.FindMessageTypeByName("proto." + name))
        program = os.path.join(package, "go", "bin", "elasticdl_ps")
        os.chmod(program, 0o755)
        port, master = free_port(), free_port()
        # It waits for a master, of which it then asks nothing.
        self.master = grpc.server(futures.ThreadPoolExecutor(1))
        self.master.add_insecure_port(f"{LOOPBACK}:{master}")
        self.master.start()
        endings.append(lambda: self.master.stop(None))
        rule = {"sgd": "SGD", "adagrad": "Adagrad"}[options.rule]
        arguments = {"sgd": "momentum=0.0;nesterov=False", "adagrad": "epsilon=1e-08"}[options.rule]
        flags = ["-port", str(port), "-master_addr", f"{LOOPBACK}:{master}", "-use_async=true", "-opt_type", rule]
        flags += ["-opt_args", f"learning_rate={RATE};{arguments};"]
        command = ["unshare", "--map-root-user", "--mount", "sh", "-c", POD, "sh", program, *flags]
        self.process = start(command, env={**os.environ, **CLUSTER})
        limits = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
        self.channel = grpc.insecure_channel(f"{LOOPBACK}:{port}", options=limits)
        grpc.channel_ready_future(self.channel).result(timeout=20)
        self.numpy, self.float = numpy, types_pb2.DT_FLOAT
        self.push_gradients = self.call("push_gradients", self.message("PushGradientsResponse"))
        self.name = "elasticdl 0.2.0rc3"

    def call(self, name, reply):
        return self.channel.unary_unary(
            "/proto.Pserver/" + name,
            request_serializer=lambda request: request.SerializeToString(),
            response_deserializer=reply.FromString,
        )

    def fill(self, tensor, array):
        tensor.dtype = self.float
        tensor.tensor_content = array.tobytes()
        for size in array.shape:
            tensor.tensor_shape.dim.add().size = size

    def array(self, tensor):
        """A tensor's values, where they lie in the message."""
        shape = [dimension.size for dimension in tensor.tensor_shape.dim]
        return self.numpy.ndarray(shape=shape, dtype=self.numpy.float32, buffer=tensor.tensor_content)


class TensorFlowCluster:
    """A TensorFlow parameter server in its own process, a worker in this one."""

    def __init__(self):
        import tensorflow

        ports = {"ps": free_port(), "worker": free_port()}
        cluster = {job: [f"{LOOPBACK}:{port}"] for job, port in ports.items()}
        self.process = start([sys.executable, os.path.abspath(__file__), json.dumps(cluster)])
        self.server = tensorflow.distribute.Server(cluster, job_name="worker", task_index=0)
        self.name = f"tensorflow-cpu {tensorflow.__version__}"


def serve_tensorflow(cluster):
    import tensorflow

    tensorflow.distribute.Server(json.loads(cluster), job_name="ps", task_index=0).join()


def measured(peer, what, times):
    """Seconds of one, by the wall and of processors: this process and the peer's pserver, if it has one, together."""
    work = getattr(peer, what)
    begin, busy = time.perf_counter(), processor_seconds(peer)
    for which in range(times):
        work(which % SETS)
    wall, busy = time.perf_counter() - begin, processor_seconds(peer) - busy
    return {"seconds": wall / times, "processor_seconds": busy / times}


def processor_seconds(peer):
    """Of a pserver whose threads last, and of this process."""
    nanos, server = 0, getattr(peer, "process", None)
    server = server and server.pid
    for task in os.listdir(f"/proc/{server}/task") if server else []:
        with open(f"/proc/{server}/task/{task}/schedstat") as told:
            nanos += int(told.read().split()[0])
    return nanos / 1e9 + time.process_time()


def answer(peers, lines):
    for line in lines:
        name, what, times = line.split()
        print(json.dumps(measured(peers[name], what, int(times))), flush=True)


def serve(options, kinds, make, asked=("pull", "push")):
    """Starts those of `kinds` that can be, each with what `make` makes, tells which there are, and answers."""
    peers, told = {}, {}
    for name, kind in kinds.items():
        try:
            peers[name] = kind(options, *make(options))
            told[name] = {"version": peers[name].name}
        except Exception as fault:  # whatever it is: a peer that is not there is said to be missing
            told[name] = {"missing": f"{type(fault).__name__}: {fault}"}
    try:
        print(json.dumps(told), flush=True)
        if options.once:
            for line in 11 * [f"{name} {what} 10" for name in peers for what in asked]:
                print(line, end=" ")
                answer(peers, [line])
        else:
            answer(peers, sys.stdin)
    finally:
        for end in endings:
            end()


if __name__ == "__main__":
    serve_tensorflow(sys.argv[1])
