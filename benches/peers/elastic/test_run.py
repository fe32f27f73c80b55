"""What starts, ends and leaves out, with programs that train nothing."""

import os
import sys
import tempfile
import time
import unittest
from pathlib import Path
from unittest import mock

import drive
import installed
import processes
import run
import systems

# A parent that starts a child in a session of its own, says its number, and waits; it does not hear SIGTERM.
PARENT = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True).pid, flush=True)
time.sleep(60)
"""


class Idle:
    """A system whose job does nothing, or ends at once."""

    services = ()
    settings = {}
    variables = {}
    seconds = 60

    def begin(self, job):
        job.start("worker0", [sys.executable, "-c", f"import time; time.sleep({self.seconds})"])


class Ended(Idle):
    seconds = 0


class InAFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def verdict(self, system, **plan):
        tools = drive.Tools(self.folder, Path(sys.executable), self.folder)
        with mock.patch.dict(systems.SYSTEMS, {"idle": ("Idle", None, system)}), mock.patch("builtins.print"):
            job = drive.Job("idle", drive.Plan(**plan), tools, self.folder / "job")
            job.run(is_struck=True)
        self.assertEqual(job.processes._marked(), [])
        return job.verdict


class Runs(InAFolder):
    def test_a_job_without_progress_stands_still_and_is_ended(self):
        self.assertEqual(self.verdict(Idle, still_seconds=0.3), "stood still")

    def test_a_job_beyond_the_limit_is_ended(self):
        self.assertEqual(self.verdict(Idle, limit_seconds=0.3), "took too long")

    def test_a_job_whose_processes_have_ended_has_ended_before_its_first_strike(self):
        self.assertEqual(self.verdict(Ended), "ended")

    def test_progress_of_workers_is_read_as_it_is_written_and_half_lines_later(self):
        tools = drive.Tools(self.folder, Path(sys.executable), self.folder)
        job = drive.Job("torchrun", drive.Plan(), tools, self.folder / "job")
        with (job.logs / "worker0-1.jsonl").open("w") as log:
            for text, progress in (
                ('{"event": "start", "worker": "worker0", "pid": 7}\n{"event": "st', -1.0),
                ('ep", "progress": 0.5}\n', 0.5),
            ):
                log.write(text)
                log.flush()
                job.look()
                self.assertEqual((job.progress, job.pid_of("worker0")), (progress, 7))


class Processes(InAFolder):
    def test_what_a_process_has_started_elsewhere_is_ended_with_it_and_nothing_else(self):
        ours = processes.Processes(self.folder, {})
        others = processes.Processes(self.folder, {})
        self.addCleanup(others.stop)
        other = others.start("other", [sys.executable, "-c", "import time; time.sleep(60)"])
        ours.start("parent", [sys.executable, "-c", PARENT])
        said = self.folder / "parent.out"
        deadline = time.monotonic() + 20
        while not said.read_text() and time.monotonic() < deadline:
            time.sleep(0.05)
        child = int(said.read_text())
        with mock.patch.object(processes, "GRACE_SECONDS", 0.2):
            ours.stop()
        self.assertEqual(ours._marked(), [])
        self.assertNotIn(child, others._marked())
        self.assertTrue(processes.is_alive(other))
        self.assertNotEqual(os.getpgid(other), os.getpgid(0))


class SetUp(InAFolder):
    def test_a_system_that_cannot_be_installed_is_left_out_with_why_and_the_others_are_not(self):
        def install(_tools, needs):
            if needs == "torchft":
                raise installed.CannotInstall("torchft: no network")

        with mock.patch.object(installed, "prepare"), mock.patch.object(installed, "install", install):
            _, left_out = run.set_up(self.folder, ["torchrun", "torchft", "torchft-example", "shoal"])
        self.assertEqual(left_out, dict.fromkeys(("torchft", "torchft-example"), "torchft: no network"))

    def test_a_command_that_fails_says_what_it_was_and_its_last_words(self):
        command = [sys.executable, "-c", "import sys; sys.exit('no such index')"]
        with (
            mock.patch("builtins.print"),
            self.assertRaisesRegex(installed.CannotInstall, "PyTorch: .* ended with 1: no such index"),
        ):
            installed._run("PyTorch", command)


if __name__ == "__main__":
    unittest.main()
