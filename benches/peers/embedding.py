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

import peer


class ElasticDl(peer.ElasticDlServer):
    """Rows of its embedding table."""

    def __init__(self, options, keys, gradient):
        from google.protobuf import empty_pb2
        from tensorflow.core.framework import tensor_pb2

        super().__init__(options)
        self.keys, self.gradient = [ids.tolist() for ids in keys], gradient
        self.pull_request = self.message("PullEmbeddingVectorRequest")
        self.push_request = self.message("PushGradientsRequest")
        self.pull_rows = self.call("pull_embedding_vectors", tensor_pb2.TensorProto)
        model = self.message("Model")()
        table = model.embedding_table_infos.add()
        table.name, table.dim, table.initializer, table.dtype = "table", options.dimension, "uniform", self.float
        self.call("push_embedding_table_infos", empty_pb2.Empty)(model)
        for first in range(0, options.rows, 20_000):
            self.pull_ids(range(first, min(first + 20_000, options.rows)))

    def pull_ids(self, ids):
        request = self.pull_request(name="table")
        request.ids.extend(ids)
        return self.array(self.pull_rows(request))

    def pull(self, which):
        assert self.pull_ids(self.keys[which]).shape == self.gradient.shape

    def push(self, which):
        request = self.push_request(learning_rate=peer.RATE)
        slices = request.gradients.embedding_tables["table"]
        slices.ids.extend(self.keys[which])
        self.fill(slices.concat_tensors, self.gradient)
        assert self.push_gradients(request).accepted


class TensorFlow(peer.TensorFlowCluster):
    """The graph of a training job with a table."""

    def __init__(self, options, keys, gradient):
        import tensorflow

        super().__init__()
        one = tensorflow.compat.v1
        self.keys = keys
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
            self.session = one.Session(self.server.target)
            self.session.run(one.global_variables_initializer())

    def pull(self, which):
        self.session.run(self.pulled, {self.ids: self.keys[which]})

    def push(self, which):
        self.session.run(self.pushed, {self.ids: self.keys[which]})


def applied(tensorflow, rule, table, squares, ids, slopes):
    raw = tensorflow.raw_ops
    if rule == "sgd":
        return raw.ResourceScatterSub(resource=table.handle, indices=ids, updates=peer.RATE * slopes)
    return raw.ResourceSparseApplyAdagradV2(
        var=table.handle, accum=squares.handle, lr=peer.RATE, epsilon=1e-8, grad=slopes, indices=ids
    )


def keys_and_gradient(options):
    import numpy

    random = numpy.random.default_rng(7)
    choose = lambda: numpy.sort(random.choice(options.rows, options.keys, replace=False)).astype(numpy.int64)
    keys = [choose() for _ in range(peer.SETS)]
    return keys, numpy.ones([options.keys, options.dimension], dtype=numpy.float32)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--wheel", default="", help="folder of ElasticDL's unpacked wheel")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--dimension", type=int, default=64)
    parser.add_argument("--keys", type=int, default=10_000, help="rows of one pull or push")
    parser.add_argument("--rule", choices=["sgd", "adagrad"], default="adagrad")
    parser.add_argument("--once", action="store_true", help="eleven rounds of its own, without `rows`")
    options = parser.parse_args()
    peer.serve(options, {"elasticdl": ElasticDl, "tensorflow": TensorFlow}, keys_and_gradient)


if __name__ == "__main__":
    main()
