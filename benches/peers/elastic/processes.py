"""The processes of one run: each is started in a session of its own, and only these and what they have started are ended."""

import contextlib
import os
import signal
import socket
import subprocess
import time
import uuid
from pathlib import Path

LOOPBACK = "127.0.0.1"
# What every process of a run has in its environment, so that those are found that have left their parent's session.
MARK = "PEERS_RUN"
# A launcher ends its workers within 5 s or kills them.
GRACE_SECONDS = 8
# One that was killed is gone when the kernel has got round to it.
KILLED_SECONDS = 5


def free_port():
    """A port of the loopback interface that nobody listens at."""
    with socket.socket() as listener:
        listener.bind((LOOPBACK, 0))
        return listener.getsockname()[1]


def is_alive(pid):
    """Whether a process of this number is there."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


class Processes:
    """Those of one run, by name."""

    def __init__(self, folder, variables):
        self.folder = folder
        self.mark = uuid.uuid4().hex
        self.variables = {**os.environ, **variables, MARK: self.mark}
        self.started = {}

    def start(self, name, command, **variables):
        """Starts a process whose words go to NAME.out."""
        with (self.folder / f"{name}.out").open("ab") as words:
            self.started[name] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=words,
                stderr=words,
                cwd=self.folder,
                env={**self.variables, **variables},
                start_new_session=True,
            )
        return self.started[name].pid

    def codes(self):
        """The exit codes of those that have ended; that of a signal is its number, negative."""
        found = {name: process.poll() for name, process in self.started.items()}
        return {name: code for name, code in found.items() if code is not None}

    def stop(self):
        """Ends what is left: by SIGTERM, and after a while by SIGKILL."""
        for process in self.started.values():
            if process.poll() is None:
                _signal_group(process.pid, signal.SIGTERM)
        self._wait(GRACE_SECONDS)
        for pid in self._marked():
            with contextlib.suppress(ProcessLookupError):
                _signal_group(os.getpgid(pid), signal.SIGKILL)
        for process in self.started.values():
            process.wait()
        self._wait(KILLED_SECONDS)

    def _wait(self, seconds):
        """Until all are gone, or so long."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self._marked():
            time.sleep(0.05)
            self.codes()

    def _marked(self):
        """Processes that have this run's mark, whoever has started them."""
        wanted = f"{MARK}={self.mark}".encode()
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            # One that has ended meanwhile, or is another user's, cannot be read.
            with contextlib.suppress(OSError):
                if wanted in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
        return found


def _signal_group(group, number):
    """Signals a process group that is not this program's own."""
    if group == os.getpgid(0):
        return
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)
        # What is frozen would never hear of it.
        os.killpg(group, signal.SIGCONT)
