"""LeNet under torchft, after its train_ddp.py: a manager for each replica group of one worker, gloo, PGTransport.

With `"loader": "checkpoint"` each replica keeps its place in the data in a file at every step, as torchft's documentation
recommends; otherwise the loader is as train_ddp.py leaves it.
"""

import logging
import os
from datetime import timedelta
from pathlib import Path

import torch
import torch.nn.functional as F
from torchdata.stateful_dataloader import StatefulDataLoader
from torchft import DistributedDataParallel, DistributedSampler, Manager, Optimizer, ProcessGroupGloo
from torchft.checkpointing.pg_transport import PGTransport

from lenet import GLOBAL_BATCH, SETTINGS, Counted, Images, Log, descent, wait_for_pace

REPLICA = int(os.environ["REPLICA_GROUP_ID"])
REPLICAS = int(os.environ["NUM_REPLICA_GROUPS"])
POSITION = Path(SETTINGS["folder"]) / f"position-{REPLICA}.pt"
KEEPS_POSITION = SETTINGS["loader"] == "checkpoint"
# Those of train_ddp.py.
GLOO_TIMEOUT = timedelta(seconds=5)
TRANSPORT_TIMEOUT = timedelta(seconds=10)
MANAGER_TIMEOUT = timedelta(seconds=30)


class Replica:
    """A replica group of one worker."""

    def __init__(self):
        self.log = Log(os.environ["PEERS_WORKER"])
        self.log.say("start", rank=REPLICA, world=REPLICAS)
        self.images = Images()
        torch.manual_seed(0)
        self.model = Counted()
        batch = round(GLOBAL_BATCH / REPLICAS)
        shard = {"replica_rank": REPLICA, "num_replica_groups": REPLICAS, "group_rank": 0, "num_replicas": 1}
        self.sampler = DistributedSampler(self.images, **shard, shuffle=True, seed=0)
        self.loader = StatefulDataLoader(self.images, batch_size=batch, num_workers=0, sampler=self.sampler)
        self.steps_per_epoch = -(-len(self.images) // REPLICAS // batch)
        self.steps = SETTINGS["epochs"] * self.steps_per_epoch
        self.epoch = 0
        if KEEPS_POSITION and POSITION.exists():
            self.load_position()
        group = ProcessGroupGloo(timeout=GLOO_TIMEOUT)
        self.manager = Manager(
            pg=group,
            min_replica_size=1,
            load_state_dict=self.load_state_dict,
            state_dict=self.state_dict,
            replica_id=f"replica_{REPLICA}",
            timeout=MANAGER_TIMEOUT,
            checkpoint_transport=PGTransport(group, timeout=TRANSPORT_TIMEOUT, device="cpu"),
            hostname="127.0.0.1",
        )
        self.ddp = DistributedDataParallel(self.manager, self.model)
        self.optimizer = Optimizer(self.manager, descent(self.model.net, self.model.seen))

    def state_dict(self):
        """What another replica heals by."""
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state):
        """Heals from another replica."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.log.say("healed", step=self.manager.current_step())

    def load_position(self):
        """Goes on where this replica's data stood."""
        position = torch.load(POSITION)
        self.epoch = position["epoch"]
        self.sampler.set_epoch(self.epoch)
        self.loader.load_state_dict(position["loader"])

    def save_position(self):
        """Keeps where this replica's data stand."""
        part = POSITION.with_suffix(".part")
        torch.save({"epoch": self.epoch, "loader": self.loader.state_dict()}, part)
        part.replace(POSITION)

    def step(self, x, y, records):
        """One batch; all replicas of a step apply it, or all refuse it."""
        before = self.manager.current_step()
        self.optimizer.zero_grad()
        workers = self.manager.num_participants()
        self.log.say("given", epoch=self.epoch, step=before, records=records.tolist())
        wait_for_pace(len(y))
        # Passes beyond the last are counted together.
        logits, count = self.ddp(x, min(self.epoch, SETTINGS["epochs"]), records, workers)
        (F.cross_entropy(logits, y) + count).backward()
        self.optimizer.step()
        after = self.manager.current_step()
        # The manager counts on through all epochs; a replica that has healed was far behind before.
        if after > before:
            self.log.say("step", epoch=0, step=after - 1, progress=after / self.steps_per_epoch)
        else:
            self.log.say("refused", epoch=0, step=before)

    def train(self):
        """Trains until the job has had its steps, as train_ddp.py does."""
        while self.manager.current_step() < self.steps:
            self.sampler.set_epoch(self.epoch)
            for x, y, records in self.loader:
                self.step(x, y, records)
                if KEEPS_POSITION:
                    self.save_position()
                if self.manager.current_step() >= self.steps:
                    break
            self.epoch += 1


def main():
    """Trains as one replica."""
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    replica = Replica()
    replica.train()
    replica.log.say("end")
    replica.model.save(Path(SETTINGS["model"]).with_stem(f"final-{REPLICA}"))
    replica.manager.shutdown(wait=False)


if __name__ == "__main__":
    main()
