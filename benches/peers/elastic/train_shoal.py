"""LeNet under Shoal: the same net, the same images, the same optimizer. The oracle is a counter, and costs the subclass below."""

import numpy as np
import torch.nn.functional as F

import shoal
import shoal.torch
from lenet import SETTINGS, Images, LeNet, Log, descent


def build():
    """The module and its optimizer."""
    net = LeNet()
    return net, descent(net)


def loss(net, batch):
    """The mean over a microbatch."""
    x, y, _ = batch
    return F.cross_entropy(net(x), y)


class Counted(shoal.torch.Program):
    """Says what it is given, and counts it in the model."""

    log = None

    def declare(self, job):
        """The module's parameters, and of each epoch one counter for each record."""
        counters = [shoal.Counter(f"seen.{epoch}", (job.records,)) for epoch in range(job.epochs)]
        self.steps_per_epoch = job.steps_per_epoch
        return [*super().declare(job), *counters]

    def step(self, batch, parameters, gradient):
        """A microbatch; its step's number counts on through all epochs."""
        if self.log is None:
            self.log = Log("trainer")
            self.log.say("start")
        progress = batch.step / self.steps_per_epoch
        self.log.say("given", epoch=batch.epoch, step=batch.step, progress=progress, records=[int(i) for i in batch.indices])
        super().step(batch, parameters, gradient)
        np.add.at(gradient[f"seen.{batch.epoch}"], batch.indices, np.float32(1))


if __name__ == "__main__":
    shoal.main(Counted(build, loss, data=Images()), epochs=SETTINGS["epochs"])
