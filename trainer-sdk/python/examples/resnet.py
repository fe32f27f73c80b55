"""ResNet-20 with batch norm on Fashion-MNIST, its images shifted and mirrored by chance (He et al. 2016, section 4.2).

The images, as zipped IDX files:

    python3 trainer-sdk/examples/fetch.py fashion-mnist data/fashion-mnist

A whole job on this machine, then one that can be scaled while it trains:

    python resnet.py
    shoal run --trainers 2:8 --epochs 20 --microbatch-records 64 --microbatches-per-step 2 -- python resnet.py
"""

import argparse
import gzip
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import Dataset

import shoal
import shoal.torch

parser = argparse.ArgumentParser()
parser.add_argument("--data", type=Path, default="data/fashion-mnist")
parser.add_argument("--lr", type=float, default=0.1)
arguments = parser.parse_args()


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.stride = stride

    def forward(self, x):
        y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        x = x[:, :, :: self.stride, :: self.stride]
        return F.relu(y + F.pad(x, (0, 0, 0, 0, 0, y.shape[1] - x.shape[1])))


def resnet(blocks=3, width=16):
    layers = [nn.Conv2d(1, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    inputs = width
    for outputs in (width, 2 * width, 4 * width):
        for block in range(blocks):
            layers.append(Block(inputs, outputs, 2 if block == 0 and outputs > width else 1))
            inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 10))


class Fashion(Dataset):
    def __init__(self, part, augmented=False):
        def idx(file):
            raw = np.frombuffer(gzip.decompress((arguments.data / file).read_bytes()), np.uint8)
            sizes = raw[4 : 4 + 4 * raw[3]].view(">u4")
            return torch.from_numpy(raw[4 + 4 * raw[3] :].reshape(sizes).copy())

        self.images = idx(f"{part}-images-idx3-ubyte.gz").unsqueeze(1)
        self.labels = idx(f"{part}-labels-idx1-ubyte.gz").long()
        self.augmented = augmented

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        x = self.images[index] / 255
        if self.augmented:
            top, left = torch.randint(0, 5, (2,)).tolist()
            x = F.pad(x, (2, 2, 2, 2))[:, top : top + 28, left : left + 28]
            x = x.flip(2) if torch.rand(()) < 0.5 else x
        return x, self.labels[index]


def build():
    net = resnet()
    return net, torch.optim.SGD(net.parameters(), lr=arguments.lr, momentum=0.9, nesterov=True, weight_decay=1e-4)


def loss(net, batch):
    x, y = batch
    return F.cross_entropy(net(x), y)


def evaluate(net, batch):
    x, y = batch
    return {"accuracy": net(x).argmax(1) == y}


if __name__ == "__main__":
    program = shoal.torch.Program(
        build, loss, evaluate, data=Fashion("train", augmented=True), eval_data=Fashion("t10k"), schedule=shoal.cosine(warmup=100)
    )
    shoal.main(program, trainers=2, epochs=20, microbatch_records=64, microbatches_per_step=2)
