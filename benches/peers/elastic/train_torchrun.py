"""LeNet under torchrun: DDP, and as PyTorch's elastic tutorial has it every worker begins again at the last snapshot.

Kinder than the tutorial in two respects: the snapshot keeps the optimizer and the step, not the epoch alone, and the batch of a
worker is the global batch divided by the number of workers. With `"sampler": "dlrover"` the sampler is DLRover's, and a
snapshot keeps its position.
"""

import os
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from lenet import GLOBAL_BATCH, SETTINGS, Counted, Images, Log, descent, wait_for_pace

SNAPSHOT = Path(SETTINGS["folder"]) / "snapshot.pt"
IS_DLROVER = SETTINGS["sampler"] == "dlrover"


class Worker:
    """One worker of one incarnation of the job."""

    def __init__(self):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.log = Log(os.environ["PEERS_WORKER"])
        self.log.say("start", rank=self.rank, world=self.world)
        self.batch = round(GLOBAL_BATCH / self.world)
        self.images = Images()
        torch.manual_seed(0)
        self.model = Counted()
        self.optimizer = descent(self.model.net, self.model.seen)
        self.first = {"epoch": 0, "step": 0, "sampler": None}
        if SNAPSHOT.exists():
            self.load()
        self.ddp = DistributedDataParallel(self.model)

    def load(self):
        """Takes model, optimizer and position from the snapshot."""
        snapshot = torch.load(SNAPSHOT)
        self.model.load_state_dict(snapshot["model"])
        self.optimizer.load_state_dict(snapshot["optimizer"])
        self.first = snapshot["first"]

    def save(self, epoch, step, sampler):
        """Replaces the snapshot in one go."""
        position = sampler.state_dict(step, self.batch) if IS_DLROVER else None
        state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
        part = SNAPSHOT.with_suffix(".part")
        torch.save({**state, "first": {"epoch": epoch, "step": step, "sampler": position}}, part)
        part.replace(SNAPSHOT)

    def sampler(self, epoch):
        """The sampler of an epoch, at the snapshot's position where it keeps one."""
        if not IS_DLROVER:
            sampler = DistributedSampler(self.images, shuffle=True, seed=0)
            sampler.set_epoch(epoch)
            return sampler
        from dlrover.trainer.torch.elastic.sampler import ElasticDistributedSampler

        sampler = ElasticDistributedSampler(self.images, shuffle=True, seed=0)
        sampler.set_epoch(epoch)
        if self.first["sampler"] and epoch == self.first["epoch"]:
            sampler.load_state_dict(self.first["sampler"])
        return sampler

    def train_epoch(self, epoch):
        """Trains from the snapshot's step on, if it lies in this epoch."""
        sampler = self.sampler(epoch)
        skipped = self.first["step"] if epoch == self.first["epoch"] else 0
        numbers_from = skipped if IS_DLROVER else 0
        loader = DataLoader(self.images, batch_size=self.batch, sampler=sampler)
        steps = numbers_from + len(loader)
        for step, (x, y, records) in enumerate(loader, start=numbers_from):
            if step < skipped:
                continue
            self.log.say("given", epoch=epoch, step=step, records=records.tolist())
            self.optimizer.zero_grad()
            wait_for_pace(len(y))
            logits, count = self.ddp(x, epoch, records, self.world)
            (F.cross_entropy(logits, y) + count).backward()
            self.optimizer.step()
            self.log.say("step", epoch=epoch, step=step, progress=epoch + (step + 1) / steps)
            if self.rank == 0 and (step + 1) % SETTINGS["snapshot_steps"] == 0:
                self.save(epoch, step + 1, sampler)


def main():
    """Trains what is left of the job."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    worker = Worker()
    for epoch in range(worker.first["epoch"], SETTINGS["epochs"]):
        worker.train_epoch(epoch)
    worker.log.say("end")
    if worker.rank == 0:
        worker.model.save(SETTINGS["model"])
    # Without it a worker sometimes aborts while it exits, and the job, though trained, stands in the exit barrier.
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
