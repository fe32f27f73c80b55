"""What the programs of all systems have in common: MNIST, LeNet, its optimizer, the oracle of counts, the log.

Settings come from the driver as one JSON object in PEERS_SETTINGS. The *oracle* is a part of the model: `seen[epoch, record]`
grows by exactly 1 whenever a gradient that the record is part of is applied. It is rolled back, healed and copied with the
model, so the final model itself says how often each record took effect.
"""

import json
import os
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset

SETTINGS = json.loads(os.environ["PEERS_SETTINGS"])
# Of a step over all workers, and of one microbatch of Shoal, for which the pace is given.
GLOBAL_BATCH = 256
PACED_RECORDS = 32
# IDX files begin with 4 bytes and 4 more for each dimension.
IMAGES_HEADER = 16
LABELS_HEADER = 8
BRIGHTEST = 255


class Images(Dataset):
    """Images of MNIST with their labels and numbers; of those to train on the first `records`."""

    def __init__(self, part="train"):
        folder = Path(SETTINGS["images"])
        count = SETTINGS["records"] if part == "train" else None
        pixels = np.fromfile(folder / f"{part}-images-idx3-ubyte", np.uint8)[IMAGES_HEADER:].reshape(-1, 1, 28, 28)[:count]
        labels = np.fromfile(folder / f"{part}-labels-idx1-ubyte", np.uint8)[LABELS_HEADER:][:count]
        self.pixels = torch.from_numpy(pixels.astype(np.float32) / BRIGHTEST)
        self.labels = torch.from_numpy(labels.astype(np.int64))

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.pixels[index], self.labels[index], index


class LeNet(nn.Module):
    """LeNet-5 with 61,706 parameters."""

    def __init__(self):
        super().__init__()
        first = (nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2))
        second = (nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2))
        self.cnn = nn.Sequential(*first, *second)
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))

    def forward(self, x):
        return self.head(self.cnn(x))


class Counted(nn.Module):
    """LeNet with the oracle as one more parameter, for systems that average gradients over workers."""

    def __init__(self):
        super().__init__()
        self.net = LeNet()
        # A pass too many, which a job that ends by its number of steps may begin, is counted as well.
        self.seen = nn.Parameter(torch.zeros(SETTINGS["epochs"] + 1, SETTINGS["records"]))

    def forward(self, x, epoch, records, workers):
        """The logits, and what is to be added to the loss: its gradient, averaged, is -1 for each record."""
        return self.net(x), -workers * self.seen[epoch, records].sum()

    def save(self, path):
        """Writes the net's parameters by their names, and the oracle as seen.EPOCH."""
        from safetensors.torch import save_file

        counts = {f"seen.{epoch}": row.clone() for epoch, row in enumerate(self.seen.detach())}
        save_file({**self.net.state_dict(), **counts}, path)


def descent(net, seen=None):
    """SGD with momentum; the oracle has a rate of 1 and none, so that -1 adds 1."""
    groups = [{"params": list(net.parameters())}]
    if seen is not None:
        groups.append({"params": [seen], "lr": 1.0, "momentum": 0.0})
    return torch.optim.SGD(groups, lr=0.05, momentum=0.9)


class Log:
    """What a worker is given and does, a line of JSON each, in a file of its own."""

    def __init__(self, worker):
        path = Path(SETTINGS["logs"]) / f"{worker}-{os.getpid()}.jsonl"
        self.file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self.worker = worker

    def say(self, event, **more):
        """Appends one line at once, so that it is there when the worker is killed."""
        line = {"t": round(time.time(), 4), "event": event, "pid": os.getpid(), "worker": self.worker, **more}
        os.write(self.file, (json.dumps(line) + "\n").encode())


def wait_for_pace(records):
    """Sleeps within a step, as if it took so long to compute, so that an epoch is long enough for faults."""
    time.sleep(SETTINGS["pace"] * records / PACED_RECORDS)
