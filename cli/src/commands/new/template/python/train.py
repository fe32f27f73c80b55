"""Tells points in a ring from others, until your own module, data and loss are here."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import TensorDataset

import shoal
import shoal.torch


def points(count, seed):
    """Points in a plane, and whether they lie in a ring."""
    x = torch.randn(count, 2, generator=torch.Generator().manual_seed(seed))
    return TensorDataset(x, ((x.norm(dim=1) - 1).abs() < 0.4).long())


def build():
    net = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 2))
    return net, torch.optim.AdamW(net.parameters(), lr=0.05)


def loss(net, batch):
    x, y = batch
    return F.cross_entropy(net(x), y)


def evaluate(net, batch):
    x, y = batch
    return {"accuracy": net(x).argmax(1) == y}


program = shoal.torch.Program(build, loss, evaluate, data=points(4000, seed=1), eval_data=points(1000, seed=2))

if __name__ == "__main__":
    shoal.main(program, trainers=2, epochs=5, microbatch_records=32, microbatches_per_step=4)
