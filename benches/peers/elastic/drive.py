"""Starts one job, strikes it by the schedule, and writes down what it did and how it ended."""

import json
import os
import resource
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path

from processes import Processes
from systems import JOINER, SYSTEMS

LOOK_SECONDS = 0.02
# A worker that joins when the others are about to end may have nobody left to join.
LATE_SECONDS = 20


@dataclass(frozen=True)
class Plan:
    """What all systems are given alike."""

    workers: int = 3
    epochs: int = 2
    records: int = 60_000
    # Seconds that a worker sleeps for each 32 records.
    pace: float = 0.05
    # Four times Shoal's lease of 5 s, and four times torchft's timeout of its process group.
    freeze_seconds: float = 20
    # torchrun's snapshots.
    snapshot_steps: int = 50
    # A run is ended after so many seconds, or so many without progress, which torchrun's slowest recovery (65 s) is far below.
    limit_seconds: float = 480
    still_seconds: float = 150

    @property
    def strikes(self):
        """When which fault comes, in epochs trained."""
        return ((1 / 3, "kill"), (2 / 3, "freeze"), (4 / 3, "leave"), (5 / 3, "join"))


@dataclass(frozen=True)
class Tools:
    """What was installed: a folder of programs, an interpreter, and the folder of the images."""

    bin: Path
    python: Path
    images: Path


@dataclass
class Job:
    """One run of one system."""

    name: str
    plan: Plan
    tools: Tools
    folder: Path
    began: float = field(default_factory=time.time)
    # Epochs trained, and when that last grew.
    progress: float = -1.0
    moved: float = field(default_factory=time.time)
    # Of workers by their names and of all of them the processes that compute.
    workers: dict = field(default_factory=dict)
    pids: list = field(default_factory=list)
    told: set = field(default_factory=set)
    # When all but a joiner had ended.
    without_joiner: float | None = None
    read: dict = field(default_factory=dict)

    def __post_init__(self):
        self.system = SYSTEMS[self.name][2]()
        self.logs = self.folder / "logs"
        self.logs.mkdir(parents=True)
        settings = {"sampler": "torch", "loader": "checkpoint", **self.system.settings}
        settings |= {"images": str(self.tools.images), "folder": str(self.folder), "logs": str(self.logs)}
        settings |= {"model": str(self.folder / "final-0.safetensors"), "records": self.plan.records}
        settings |= {"epochs": self.plan.epochs, "pace": self.plan.pace, "snapshot_steps": self.plan.snapshot_steps}
        self.processes = Processes(self.folder, {**self.system.variables, "PEERS_SETTINGS": json.dumps(settings)})

    def note(self, event, **more):
        """Writes what the driver did into driver.jsonl."""
        line = {"t": round(time.time(), 4), "event": event, **more}
        with (self.folder / "driver.jsonl").open("a", encoding="utf-8") as journal:
            journal.write(json.dumps(line) + "\n")
        print(
            f"  {time.time() - self.began:6.1f} s  {event} {' '.join(f'{key}={value}' for key, value in more.items())}",
            flush=True,
        )

    def start(self, name, command, **variables):
        """Starts a process of the job."""
        self.note("started", name=name, process=self.processes.start(name, command, **variables))

    def pid_of(self, worker):
        """The process that computes as this worker, or None before its first."""
        return self.workers.get(worker)

    def look(self):
        """Reads on in the workers' logs."""
        for path in self.logs.glob("*.jsonl"):
            with path.open("rb") as log:
                log.seek(self.read.get(path, 0))
                for line in log:
                    # One that is being written is read later.
                    if not line.endswith(b"\n"):
                        break
                    self.read[path] = self.read.get(path, 0) + len(line)
                    self._take(json.loads(line))

    def _take(self, line):
        if line["event"] == "start":
            self.workers[line["worker"]] = line["pid"]
            self.pids.append(line["pid"])
        if line.get("progress", -1) > self.progress:
            self.progress, self.moved = line["progress"], time.time()

    def is_over(self):
        """Whether all have ended, or stand still, or the time is up."""
        codes = self.processes.codes()
        for name in codes.keys() - self.told:
            self.told.add(name)
            self.note("ended", name=name, code=codes[name])
        self.verdict = self._verdict(codes)
        return self.verdict is not None

    def _verdict(self, codes):
        now = time.time()
        needed = [name for name in self.processes.started if name not in self.system.services]
        if all(name in codes for name in needed):
            return "ended"
        if all(name in codes for name in needed if not name.endswith(JOINER)):
            self.without_joiner = self.without_joiner or now
            if now - self.without_joiner > LATE_SECONDS:
                return "ended"
        if now - self.moved > self.plan.still_seconds:
            return "stood still"
        return "took too long" if now - self.began > self.plan.limit_seconds else None

    def wait_until(self, reached):
        """Waits for a condition, and says whether it came before the end."""
        while not self.is_over():
            if reached():
                return True
            time.sleep(LOOK_SECONDS)
            self.look()
        return False

    def strike(self, kind):
        """One fault of the schedule."""
        if kind == "leave":
            # The pause may begin before the command has returned.
            self.note("strike", kind=kind)
            self.system.leave(self)
        elif kind == "join":
            self.note("strike", kind=kind)
            self.system.join(self)
        else:
            # Others than the first: its agent has torchrun's store.
            pid = self.system.victim(self, 1 if kind == "kill" else 2)
            if pid is None:
                self.note("missed", kind=kind, why="no such worker computes")
                return
            os.kill(pid, signal.SIGKILL if kind == "kill" else signal.SIGSTOP)
            self.note("strike", kind=kind, process=pid)
            if kind == "freeze":
                self._thaw_later(pid)

    def _thaw_later(self, pid):
        thaw = time.time() + self.plan.freeze_seconds
        if self.wait_until(lambda: time.time() >= thaw):
            os.kill(pid, signal.SIGCONT)
            self.note("strike", kind="thaw", process=pid)

    def run(self, is_struck):
        """The whole run; nothing of it is left behind, however it ends."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        load = os.getloadavg()[0]
        try:
            self.system.begin(self)
            for progress, kind in self.plan.strikes if is_struck else ():
                if not self.wait_until(lambda progress=progress: self.progress >= progress):
                    break
                self.strike(kind)
            self.wait_until(lambda: False)
            seconds = time.time() - self.began
        finally:
            codes = self.processes.codes()
            self.processes.stop()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        loads = [round(load, 1), round(os.getloadavg()[0], 1)]
        self.note("done", verdict=self.verdict, codes=codes, seconds=round(seconds, 1), cpu=round(cpu, 1), load=loads)
