"""Peers that pull and push a dense parameter, served to `roofline`, which asks for rounds in turn with its own.

Needs Python 3.11 with tensorflow-cpu and grpcio, and the unpacked wheel of elasticdl 0.2.0rc3; another Python may have torch:

    pip install tensorflow-cpu grpcio        pip install torch
    pip download --no-deps elasticdl && unzip elasticdl-*.whl -d WHEEL
    python dense.py --wheel WHEEL --once

What it says and is asked is as in embedding.py. A peer's client is the leanest that its interface allows: gradients lie
ready, and what is pulled is looked at in place. All pushes are plain descent.
"""

import argparse
import os
import sys

import peer


class ElasticDl(peer.ElasticDlServer):
    """A dense parameter of its model."""

    def __init__(self, options, gradient):
        from google.protobuf import empty_pb2

        super().__init__(options)
        self.gradient = gradient
        self.pull_request = self.message("PullDenseParametersRequest")
        self.push_request = self.message("PushGradientsRequest")
        self.pull_dense = self.call("pull_dense_parameters", self.message("PullDenseParametersResponse"))
        model = self.message("Model")()
        self.fill(model.dense_parameters["w"], gradient)
        self.call("push_model", empty_pb2.Empty)(model)

    def pull(self, which):
        reply = self.pull_dense(self.pull_request(version=-1))
        assert reply.initialized and self.array(reply.dense_parameters["w"]).shape == self.gradient.shape

    def push(self, which):
        request = self.push_request(learning_rate=peer.RATE)
        self.fill(request.gradients.dense_parameters["w"], self.gradient)
        assert self.push_gradients(request).accepted


class TensorFlow(peer.TensorFlowCluster):
    """The graph of a training job with one variable."""

    def __init__(self, options, gradient):
        import tensorflow

        super().__init__()
        one = tensorflow.compat.v1
        with tensorflow.Graph().as_default():
            with tensorflow.device("/job:ps/task:0/cpu:0"):
                w = one.get_variable("w", gradient.shape, use_resource=True, initializer=one.zeros_initializer())
            with tensorflow.device("/job:worker/task:0/cpu:0"):
                slopes = one.get_variable("slopes", gradient.shape, use_resource=True, initializer=one.ones_initializer())
                slopes = tensorflow.identity(slopes)
            with tensorflow.device("/job:ps/task:0/cpu:0"):
                raw = tensorflow.raw_ops
                self.pushed = raw.ResourceApplyGradientDescent(var=w.handle, alpha=peer.RATE, delta=slopes)
                values = tensorflow.identity(w)
            with tensorflow.device("/job:worker/task:0/cpu:0"):
                self.pulled = tensorflow.identity(values).op
            self.session = one.Session(self.server.target)
            self.session.run(one.global_variables_initializer())

    def pull(self, which):
        self.session.run(self.pulled)

    def push(self, which):
        self.session.run(self.pushed)


class TorchRpc:
    """A parameter held by another process and reached by torch.distributed.rpc (TensorPipe over TCP)."""

    def __init__(self, options, gradient):
        import torch

        port = str(peer.free_port())
        command = [sys.executable, os.path.abspath(__file__), "--torch", port, "--elements", str(options.elements)]
        self.process = peer.start(command)
        self.rpc = begin_torch("trainer", 1, port)
        self.gradient = torch.from_numpy(gradient)
        self.name = f"torch {torch.__version__}"

    def pull(self, which):
        assert self.rpc.rpc_sync("ps", held).shape == self.gradient.shape

    def push(self, which):
        self.rpc.rpc_sync("ps", take, (self.gradient,))


PARAMETER = []


def held():
    return PARAMETER[0]


def take(gradient):
    PARAMETER[0].sub_(gradient, alpha=peer.RATE)


def begin_torch(name, rank, port):
    from torch.distributed import rpc

    # TCP, as between machines: not shared memory.
    wire = {"_transports": ["uv"], "_channels": ["basic"], "init_method": f"tcp://{peer.LOOPBACK}:{port}"}
    options = rpc.TensorPipeRpcBackendOptions(num_worker_threads=4, **wire)
    rpc.init_rpc(name, rank=rank, world_size=2, rpc_backend_options=options)
    return rpc


def serve_torch(options):
    import torch

    PARAMETER.append(torch.zeros(options.elements))
    begin_torch("ps", 0, options.torch).shutdown()


def gradient(options):
    import numpy

    return (numpy.ones([options.elements], dtype=numpy.float32),)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--wheel", default="", help="folder of ElasticDL's unpacked wheel")
    parser.add_argument("--elements", type=int, default=16 << 20)
    parser.add_argument("--once", action="store_true", help="eleven rounds of its own, without `roofline`")
    parser.add_argument("--torch", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.rule = "sgd"
    if options.torch:
        return serve_torch(options)
    peer.serve(options, {"elasticdl": ElasticDl, "tensorflow": TensorFlow, "torch": TorchRpc}, gradient)


if __name__ == "__main__":
    main()
