"""Peers that pull and push rows of an embedding table, served to `rows`, which asks for rounds in turn with its own.

Needs Python 3.11 with tensorflow-cpu and grpcio, and the unpacked wheel of elasticdl 0.2.0rc3 (its Go pserver is inside):

    pip install tensorflow-cpu grpcio
    pip download --no-deps elasticdl && unzip elasticdl-*.whl -d WHEEL
    python embedding.py --wheel WHEEL --once

The first line on standard output is a JSON object: of each peer its version, or why it is not there. Then, for every line
`PEER pull|push TIMES` on standard input, one object with the seconds of one pull or push, by the wall
and of processors. With `--once` it asks itself.
A peer's client is the leanest that its interface allows: requests are made of arrays that lie ready, and what is pulled
is looked at in place.
"""

import argparse
import ast
import json
import os
import socket
import subprocess
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

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


class ElasticDl:
    """The Go pserver of ElasticDL's wheel, over gRPC, asynchronous as its jobs are."""

    def __init__(self, options, keys, gradient):
        import grpc
        import numpy
        from concurrent import futures
        from google.protobuf import descriptor_pool, empty_pb2, message_factory
        from tensorflow.core.framework import tensor_pb2, types_pb2

        self.numpy, self.keys, self.gradient = numpy, [ids.tolist() for ids in keys], gradient
        package = os.path.join(options.wheel, "elasticdl")
        pool = descriptor_pool.Default()
        pool.AddSerializedFile(described(os.path.join(package, "proto", "elasticdl_pb2.py")))
        message = lambda name: message_factory.GetMessageClass(pool.FindMessageTypeByName("proto." + name))
        self.pull_request, self.push_request = message("PullEmbeddingVectorRequest"), message("PushGradientsRequest")
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
        channel = grpc.insecure_channel(f"{LOOPBACK}:{port}", options=limits)
        grpc.channel_ready_future(channel).result(timeout=20)
        call = lambda name, reply: channel.unary_unary(
            "/proto.Pserver/" + name,
            request_serializer=lambda request: request.SerializeToString(),
            response_deserializer=reply.FromString,
        )
        self.pull_rows = call("pull_embedding_vectors", tensor_pb2.TensorProto)
        self.push_gradients = call("push_gradients", message("PushGradientsResponse"))
        self.float = types_pb2.DT_FLOAT
        model = message("Model")()
        table = model.embedding_table_infos.add()
        table.name, table.dim, table.initializer, table.dtype = "table", options.dimension, "uniform", self.float
        call("push_embedding_table_infos", empty_pb2.Empty)(model)
        for first in range(0, options.rows, 20_000):
            self.pull_ids(range(first, min(first + 20_000, options.rows)))
        self.name = "elasticdl 0.2.0rc3"

    def pull_ids(self, ids):
        request = self.pull_request(name="table")
        request.ids.extend(ids)
        rows = self.pull_rows(request)
        shape = [dimension.size for dimension in rows.tensor_shape.dim]
        return self.numpy.ndarray(shape=shape, dtype=self.numpy.float32, buffer=rows.tensor_content)

    def pull(self, which):
        assert self.pull_ids(self.keys[which]).shape == self.gradient.shape

    def push(self, which):
        request = self.push_request(learning_rate=RATE)
        slices = request.gradients.embedding_tables["table"]
        slices.ids.extend(self.keys[which])
        slices.concat_tensors.dtype = self.float
        slices.concat_tensors.tensor_content = self.gradient.tobytes()
        for size in self.gradient.shape:
            slices.concat_tensors.tensor_shape.dim.add().size = size
        assert self.push_gradients(request).accepted


def described(path):
    """The descriptor in a module that protoc wrote, which today's protobuf would not import."""
    for node in ast.walk(ast.parse(open(path).read())):
        if isinstance(node, ast.keyword) and node.arg == "serialized_pb":
            return ast.literal_eval(node.value)
    raise ValueError(f"{path} has no descriptor")


class TensorFlow:
    """A TensorFlow parameter server in its own process, a worker in this one, the graph of a training job."""

    def __init__(self, options, keys, gradient):
        import tensorflow

        one = tensorflow.compat.v1
        self.keys = keys
        ports = {"ps": free_port(), "worker": free_port()}
        cluster = {job: [f"{LOOPBACK}:{port}"] for job, port in ports.items()}
        command = [sys.executable, os.path.abspath(__file__), "--serve", json.dumps(cluster)]
        self.process = start(command)
        server = tensorflow.distribute.Server(cluster, job_name="worker", task_index=0)
        with tensorflow.Graph().as_default():
            with tensorflow.device("/job:ps/task:0/cpu:0"):
                shape = [options.rows, options.dimension]
                table = one.get_variable("table", shape, use_resource=True, initializer=one.random_uniform_initializer())
                squares = one.get_variable("squares", shape, use_resource=True, initializer=one.zeros_initializer())
            with tensorflow.device("/job:worker/task:0/cpu:0"):
                self.ids = one.placeholder(tensorflow.int64, [None])
                slopes = one.get_variable("slopes", gradient.shape, use_resource=True, initializer=one.ones_initializer())
                slopes = tensorflow.identity(slopes)
            with tensorflow.device("/job:ps/task:0/cpu:0"):
                rows = tensorflow.gather(table, self.ids)
                self.pushed = applied(tensorflow, options.rule, table, squares, self.ids, slopes)
            with tensorflow.device("/job:worker/task:0/cpu:0"):
                self.pulled = tensorflow.identity(rows).op
            self.session = one.Session(server.target)
            self.session.run(one.global_variables_initializer())
        self.name = f"tensorflow-cpu {tensorflow.__version__}"

    def pull(self, which):
        self.session.run(self.pulled, {self.ids: self.keys[which]})

    def push(self, which):
        self.session.run(self.pushed, {self.ids: self.keys[which]})


def applied(tensorflow, rule, table, squares, ids, slopes):
    raw = tensorflow.raw_ops
    if rule == "sgd":
        return raw.ResourceScatterSub(resource=table.handle, indices=ids, updates=RATE * slopes)
    return raw.ResourceSparseApplyAdagradV2(
        var=table.handle, accum=squares.handle, lr=RATE, epsilon=1e-8, grad=slopes, indices=ids
    )


def serve_tensorflow(cluster):
    import tensorflow

    tensorflow.distribute.Server(json.loads(cluster), job_name="ps", task_index=0).join()


def measured(peer, what, times):
    """Seconds of one, by the wall and of processors: this process and the peer's pserver together."""
    work = getattr(peer, what)
    begin, busy = time.perf_counter(), processor_seconds(peer.process.pid)
    for which in range(times):
        work(which % SETS)
    wall, busy = time.perf_counter() - begin, processor_seconds(peer.process.pid) - busy
    return {"seconds": wall / times, "processor_seconds": busy / times}


def processor_seconds(server):
    """Of a pserver whose threads last, and of this process."""
    nanos = 0
    for task in os.listdir(f"/proc/{server}/task"):
        with open(f"/proc/{server}/task/{task}/schedstat") as told:
            nanos += int(told.read().split()[0])
    return nanos / 1e9 + time.process_time()


def answer(peers, lines):
    for line in lines:
        name, what, times = line.split()
        print(json.dumps(measured(peers[name], what, int(times))), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--wheel", default="", help="folder of ElasticDL's unpacked wheel")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--dimension", type=int, default=64)
    parser.add_argument("--keys", type=int, default=10_000, help="rows of one pull or push")
    parser.add_argument("--rule", choices=["sgd", "adagrad"], default="adagrad")
    parser.add_argument("--once", action="store_true", help="eleven rounds of its own, without `rows`")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        return serve_tensorflow(options.serve)
    peers, told = begin(options)
    try:
        print(json.dumps(told), flush=True)
        if options.once:
            rounds = 11 * [f"{name} {what} 10" for name in peers for what in ("pull", "push")]
            for asked in rounds:
                print(asked, end=" ")
                answer(peers, [asked])
        else:
            answer(peers, sys.stdin)
    finally:
        for end in endings:
            end()


def begin(options):
    """The peers that could be started; of each its version, or why it is not there."""
    peers, told = {}, {}
    try:
        import numpy

        random = numpy.random.default_rng(7)
        choose = lambda: numpy.sort(random.choice(options.rows, options.keys, replace=False)).astype(numpy.int64)
        keys = [choose() for _ in range(SETS)]
        gradient = numpy.ones([options.keys, options.dimension], dtype=numpy.float32)
    except ImportError as missing:
        return {}, {name: {"missing": str(missing)} for name in ("elasticdl", "tensorflow")}
    for name, kind in [("elasticdl", ElasticDl), ("tensorflow", TensorFlow)]:
        try:
            peers[name] = kind(options, keys, gradient)
            told[name] = {"version": peers[name].name}
        except Exception as fault:  # whatever it is: a peer that is not there is said to be missing
            told[name] = {"missing": f"{type(fault).__name__}: {fault}"}
    return peers, told


if __name__ == "__main__":
    main()
