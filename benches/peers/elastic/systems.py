"""How a job of each system begins, loses a worker on request, and gets one more."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from processes import LOOPBACK, free_port, is_alive

HERE = Path(__file__).resolve().parent
# Shoal's microbatch; eight of them are the global batch of the others.
MICROBATCH_RECORDS = 32
MICROBATCHES_PER_STEP = 8
# Of gloo and of threads, for all PyTorch jobs alike.
VARIABLES = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "TORCH_CPP_LOG_LEVEL": "ERROR"}
# Without it workers of a restarted job meet the addresses of dead ones and wait for them.
WORKAROUND = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
COMMAND_SECONDS = 30
# Ends the name of a worker that joins in the place of one that has left.
JOINER = "b"


class Torchrun:
    """One agent for each worker; the first one's has the store of the rendezvous."""

    services = ()

    def __init__(self, sampler="torch", variables=WORKAROUND):
        self.settings = {"sampler": sampler}
        self.variables = {**VARIABLES, **variables}

    def begin(self, job):
        """Starts the agents."""
        self.port = free_port()
        for number in range(job.plan.workers):
            self._start_agent(job, number)

    def _start_agent(self, job, number, again=""):
        workers = job.plan.workers
        name = f"worker{number}{again}"
        flags = [f"--nnodes={min(2, workers)}:{workers}", "--nproc-per-node=1", "--max-restarts=10", "--rdzv-id=peers"]
        flags += ["--rdzv-backend=c10d", f"--rdzv-endpoint={LOOPBACK}:{self.port}", f"--local-addr={LOOPBACK}"]
        flags += [f"--rdzv-conf=is_host={int(number == 0)}"]
        command = [*_torchrun(job), *flags, str(HERE / "train_torchrun.py")]
        job.start(name, command, PEERS_WORKER=name)

    def victim(self, job, number):
        """The process that computes as this worker."""
        return job.pid_of(f"worker{number}")

    def leave(self, job):
        """What the agent of a pod gets that is deleted."""
        os.kill(job.processes.started["worker2"].pid, signal.SIGTERM)

    def join(self, job):
        """One more agent."""
        self._start_agent(job, 2, again=JOINER)


class Torchft:
    """A lighthouse, and one torchrun for each replica group of one worker."""

    services = ("lighthouse",)

    def __init__(self, loader="checkpoint"):
        self.settings = {"loader": loader}
        self.variables = {**VARIABLES, "RUST_LOG": "info"}

    def begin(self, job):
        """Starts the lighthouse and the replicas."""
        self.lighthouse = free_port()
        flags = ["--bind", f"{LOOPBACK}:{self.lighthouse}", "--min_replicas", "1"]
        # Those of its README.
        flags += ["--quorum_tick_ms", "100", "--join_timeout_ms", "10000"]
        job.start("lighthouse", [str(job.tools.bin / "torchft_lighthouse"), *flags])
        for number in range(job.plan.workers):
            self._start_replica(job, number)

    def _start_replica(self, job, number, again=""):
        name = f"worker{number}{again}"
        flags = ["--nnodes=1", "--nproc-per-node=1", "--max-restarts=10", "--rdzv-backend=c10d"]
        flags += [f"--rdzv-endpoint={LOOPBACK}:{free_port()}", f"--local-addr={LOOPBACK}"]
        variables = {"REPLICA_GROUP_ID": str(number), "NUM_REPLICA_GROUPS": str(job.plan.workers), "PEERS_WORKER": name}
        variables["TORCHFT_LIGHTHOUSE"] = f"http://{LOOPBACK}:{self.lighthouse}"
        job.start(name, [*_torchrun(job), *flags, str(HERE / "train_torchft.py")], **variables)

    def victim(self, job, number):
        """The process that computes as this replica."""
        return job.pid_of(f"worker{number}")

    def leave(self, job):
        """What the agent of a pod gets that is deleted."""
        os.kill(job.processes.started["worker2"].pid, signal.SIGTERM)

    def join(self, job):
        """The replica that has left, anew."""
        self._start_replica(job, 2, again=JOINER)


class Shoal:
    """`shoal run`: a master, two parameter servers with a copy of each block, trainers."""

    services = ()
    settings = {}
    variables = {}

    def begin(self, job):
        """Starts `shoal run`, which starts the rest."""
        plan = job.plan
        flags = ["--trainers", str(plan.workers), "--pservers", "2", "--replicas", "1", "--epochs", str(plan.epochs)]
        flags += ["--microbatch-records", str(MICROBATCH_RECORDS), "--microbatches-per-step", str(MICROBATCHES_PER_STEP)]
        flags += ["--pace-millis", str(round(plan.pace * 1000)), "--folder", str(job.folder / "run"), "-o", "json"]
        program = [str(job.tools.python), str(HERE / "train_shoal.py")]
        job.start("run", [str(job.tools.bin / "shoal"), "run", *flags, "--", *program])

    def victim(self, job, number):
        """One of the trainers that compute."""
        living = sorted(pid for pid in job.pids if is_alive(pid))
        return living[number % len(living)] if living else None

    def leave(self, job):
        """One trainer fewer: `shoal run` replaces one that gets SIGTERM from elsewhere."""
        self._scale(job, job.plan.workers - 1)

    def join(self, job):
        """As many trainers as at first."""
        self._scale(job, job.plan.workers)

    def _scale(self, job, trainers):
        command = [str(job.tools.bin / "shoal"), "scale", "--trainers", str(trainers), "--run", str(job.folder / "run")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_SECONDS)
        if done.returncode != 0:
            print(f"{' '.join(command)}: {done.stderr.strip()}", file=sys.stderr)


def _torchrun(job):
    return [str(job.tools.python), "-m", "torch.distributed.run"]


# By name what a system is called in the table, what it needs beside PyTorch, and how its job is made.
SYSTEMS = {
    "torchrun": ("torchrun", None, Torchrun),
    "torchrun-dlrover": ("torchrun + DLRover's sampler", "dlrover", lambda: Torchrun(sampler="dlrover")),
    "torchft": ("torchft", "torchft", Torchft),
    "shoal": ("Shoal", "shoal", Shoal),
    "torchrun-as-installed": ("torchrun without the workaround", None, lambda: Torchrun(variables={})),
    "torchft-example": ("torchft, loader of its example", "torchft", lambda: Torchft(loader="example")),
}
# The others are variants, for whoever asks for them.
USUAL = ("torchrun", "torchrun-dlrover", "torchft", "shoal")
