"""Readers of records, served to `roofline`, which asks for rounds in turn with its own: the same records, without
compression, from a warm page cache.

Needs Python 3.11 with array_record, or tensorflow-cpu, or both:

    pip install array_record tensorflow-cpu
    python reading.py --once

What it says and is asked is as in embedding.py, with `scan` for `pull` and `push`. A scan looks at every record: as bytes of
Python's, or as a tensor in batches of a thousand, whichever the interface has.
"""

import argparse
import os
import tempfile

import peer

BATCH = 1024


class ArrayRecord:
    """All records, read by their index a thousand at a time."""

    def __init__(self, options, folder):
        from importlib.metadata import version

        from array_record.python import array_record_module

        self.module, self.path, self.records = array_record_module, os.path.join(folder, "array"), options.records
        writer = array_record_module.ArrayRecordWriter(self.path, f"group_size:{BATCH},uncompressed")
        for _ in range(options.records):
            writer.write(bytes(options.bytes))
        writer.close()
        self.name = f"array_record {version('array_record')}"

    def scan(self, which):
        reader, found = self.module.ArrayRecordReader(self.path), 0
        for first in range(0, self.records, BATCH):
            found += len(reader.read(first, min(first + BATCH, self.records)))
        reader.close()
        assert found == self.records


class TfData:
    """A dataset of TFRecords in batches."""

    def __init__(self, options, folder):
        import tensorflow

        self.tensorflow, self.path, self.records = tensorflow, os.path.join(folder, "tf"), options.records
        with tensorflow.io.TFRecordWriter(self.path) as writer:
            for _ in range(options.records):
                writer.write(bytes(options.bytes))
        self.name = f"tf.data {tensorflow.__version__}"

    def scan(self, which):
        dataset, found = self.tensorflow.data.TFRecordDataset(self.path).batch(BATCH), 0
        for batch in dataset:
            found += int(batch.shape[0])
        assert found == self.records


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=64 << 10)
    parser.add_argument("--bytes", type=int, default=1 << 10, help="of each record")
    parser.add_argument("--once", action="store_true", help="eleven rounds of its own, without `roofline`")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        peer.serve(options, {"arrayrecord": ArrayRecord, "tf.data": TfData}, lambda _: (folder,), ["scan"])


if __name__ == "__main__":
    main()
