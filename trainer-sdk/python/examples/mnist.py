"""LeNet on MNIST.

The images, as IDX files:

    python3 trainer-sdk/examples/fetch.py mnist data/mnist

A whole job on this machine, then one that can be scaled while it trains:

    python mnist.py
    shoal run --trainers 2:8 --epochs 8 --microbatch-records 32 --microbatches-per-step 8 -- python mnist.py --lr 0.001
"""

import argparse
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import TensorDataset

import shoal
import shoal.torch

parser = argparse.ArgumentParser()
parser.add_argument("--data", type=Path, default="data/mnist")
parser.add_argument("--lr", type=float, default=2e-3)
arguments = parser.parse_args()


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5, padding=2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(400, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x / 255)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x.flatten(1))))))


def mnist(part):
    def idx(file):
        raw = np.frombuffer((arguments.data / file).read_bytes(), np.uint8)
        sizes = raw[4 : 4 + 4 * raw[3]].view(">u4")
        return torch.from_numpy(raw[4 + 4 * raw[3] :].reshape(sizes).copy())

    return TensorDataset(idx(f"{part}-images-idx3-ubyte").unsqueeze(1), idx(f"{part}-labels-idx1-ubyte").long())


def build():
    net = LeNet()
    return net, torch.optim.AdamW(net.parameters(), lr=arguments.lr, weight_decay=0.01)


def loss(net, batch):
    x, y = batch
    return F.cross_entropy(net(x), y)


def evaluate(net, batch):
    x, y = batch
    z = net(x)
    return {"accuracy": z.argmax(1) == y, "log_loss": F.cross_entropy(z, y, reduction="none")}


if __name__ == "__main__":
    program = shoal.torch.Program(
        build, loss, evaluate, data=mnist("train"), eval_data=mnist("t10k"), schedule=shoal.cosine(to=0.01), clip_norm=1.0
    )
    shoal.main(program, trainers=2, epochs=8, microbatch_records=32, microbatches_per_step=8)
