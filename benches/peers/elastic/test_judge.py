"""The judge, on small logs whose verdict is plain: python3 -m unittest discover --start-directory benches/peers/elastic."""

import array
import json
import struct
import tempfile
import unittest
from pathlib import Path

import judge
import table
from drive import Plan

ONCE, TWICE, NEVER = 1.0, 2.0, 0.0


def step(t, number, pid=1, worker="worker0", epoch=0):
    return {
        "t": t,
        "event": "step",
        "worker": worker,
        "pid": pid,
        "epoch": epoch,
        "step": number,
        "progress": epoch + number / 10,
    }


def given(t, number, records, pid=1, epoch=0):
    return {"t": t, "event": "given", "worker": "trainer", "pid": pid, "epoch": epoch, "step": number, "progress": number / 10,
            "records": records}  # fmt: skip


def model(path, **tensors):
    """A file of safetensors with these values."""
    header, body = {}, b""
    for name, values in tensors.items():
        raw = array.array("f", values).tobytes()
        header[name] = {"dtype": "F32", "shape": [len(values)], "data_offsets": [len(body), len(body) + len(raw)]}
        body += raw
    told = json.dumps(header).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(struct.pack("<Q", len(told)) + told + body)


def lines(path, events):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(event) + "\n" for event in events), encoding="utf-8")


def run(folder, events, strikes, net, verdict="ended", **counts):
    """The folder of a run."""
    lines(folder / "logs" / "worker0-1.jsonl", events)
    done = {
        "event": "done",
        "t": 99,
        "verdict": verdict,
        "codes": {"worker0": 0},
        "seconds": 50.0,
        "cpu": 9.0,
        "load": [1.0, 2.0],
    }
    lines(folder / "driver.jsonl", [*({"event": "strike", "t": at, "kind": kind} for at, kind in strikes), done])
    model(folder / "final-0.safetensors", **{"cnn.0.weight": net, **counts})
    return folder


class Pauses(unittest.TestCase):
    def test_the_longest_time_without_a_step_is_the_strikes_after_which_it_came(self):
        found = judge.pauses([0, 1, 2, 7, 8, 9, 12], [(2.5, "kill"), (8.5, "freeze")])
        self.assertEqual(found, {"kill": 5, "freeze": 3})

    def test_a_time_with_two_strikes_in_it_is_the_first_ones(self):
        found = judge.pauses([0, 1, 22, 23], [(2, "freeze"), (21, "thaw")])
        self.assertEqual(found, {"freeze": 21, "thaw": 1})

    def test_a_strike_after_which_nothing_was_done_has_no_pause(self):
        self.assertEqual(judge.pauses([0, 1], [(3, "kill")]), {"kill": None})

    def test_steps_that_are_repeated_end_a_pause_and_not_the_wait_for_new_ones(self):
        steps = [step(0, 1), step(1, 2), step(5, 1, pid=2), step(6, 2, pid=2), step(7, 3, pid=2)]
        moments = [each["t"] for each in steps]
        self.assertEqual(judge.pauses(moments, [(1.5, "kill")]), {"kill": 4})
        self.assertEqual(judge.pauses(judge.advances(steps), [(1.5, "kill")]), {"kill": 6})


class Steps(unittest.TestCase):
    def test_steps_that_a_worker_does_again_after_a_restart_are_counted_once_however_many_workers_there_are(self):
        first = [step(number, number, pid=1, worker=worker) for worker in ("worker0", "worker1") for number in range(5)]
        again = [step(10 + number, number, pid=2, worker=worker) for worker in ("worker0", "worker1") for number in range(3, 7)]
        self.assertEqual(judge.repeated_steps(first + again), 2)

    def test_a_late_copy_of_a_part_of_a_step_is_no_repeated_step(self):
        events = judge.with_steps([given(0, 0, [1, 2]), given(1, 0, [3, 4]), given(2, 1, [5, 6]), given(3, 0, [3, 4])])
        self.assertEqual(judge.repeated_steps(events), 0)
        self.assertEqual(judge.given_again(events), 2)

    def test_a_step_that_is_given_out_whole_after_a_later_one_is_repeated(self):
        events = judge.with_steps([given(0, 0, [1]), given(1, 0, [2]), given(2, 1, [3]), given(3, 0, [1]), given(4, 0, [2])])
        self.assertEqual(judge.repeated_steps(events), 1)

    def test_a_step_is_done_when_the_next_one_is_given_out(self):
        events = judge.with_steps([given(0, 0, [1]), given(1, 0, [2]), given(4, 1, [3]), given(6, 2, [4])])
        self.assertEqual([(event["t"], event["step"]) for event in events if event["event"] == "step"], [(4, 0), (6, 1)])


class Models(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        counts = {"seen.0": [ONCE, ONCE, ONCE, TWICE], "seen.1": [NEVER, NEVER, ONCE, ONCE]}
        events = [step(number, number) for number in range(9)]
        self.quiet = run(self.folder / "quiet", events, [], [0.5, -4.0], **{"seen.0": [ONCE] * 4, "seen.1": [ONCE] * 4})
        self.struck = run(self.folder / "struck", events, [(2.5, "kill")], [0.75, -4.0], **counts)

    def test_records_without_effect_and_with_two_are_counted_by_epoch(self):
        found = judge.judge(self.struck, self.quiet)
        self.assertEqual(found["effects"], [{1: 3, 2: 1}, {0: 2, 1: 2}])
        self.assertEqual(found["rounding"], 0)

    def test_a_model_is_compared_bit_by_bit_and_without_what_counts(self):
        found = judge.judge(self.struck, self.quiet)
        self.assertEqual((found["equal_bits"], found["difference"], found["largest"]), (False, 0.25, 4.0))
        self.assertTrue(judge.judge(self.quiet, self.quiet)["equal_bits"])

    def test_zeros_of_two_signs_are_not_the_same_bits(self):
        negative = run(self.folder / "negative", [step(0, 0)], [], [-0.0])
        positive = run(self.folder / "positive", [step(0, 0)], [], [0.0])
        self.assertFalse(judge.judge(negative, positive)["equal_bits"])

    def test_a_run_that_stood_still_has_a_pause_until_it_was_ended(self):
        steps = [step(1, 1), step(2, 2), step(2.1, 2)]
        stood = run(self.folder / "stood", steps, [(2.05, "kill")], [0.5], verdict="stood still")
        (stood / "final-0.safetensors").unlink()
        found = judge.judge(stood)
        self.assertEqual((found["not_over"], round(found["pauses"]["kill"], 1)), ("kill", 96.9))
        rows = table.markdown([{"title": "torchrun", "struck": found}], Plan()).splitlines()
        self.assertEqual(rows[2], "| kill -9 of a worker, restarted: longest pause, s | **97, not over** |")

    def test_half_a_line_of_a_killed_worker_is_left_out(self):
        with (self.struck / "logs" / "worker0-1.jsonl").open("a") as log:
            log.write('{"t": 9, "event": "st')
        self.assertEqual(judge.judge(self.struck)["pauses"], {"kill": 1})

    def test_the_table_says_what_stood_still_and_leaves_out_what_it_does_not_have(self):
        (self.struck / "final-0.safetensors").unlink()
        found = {
            "system": "torchrun",
            "title": "torchrun",
            "undisturbed": judge.judge(self.quiet),
            "struck": judge.judge(self.struck),
        }
        found["struck"]["verdict"] = "stood still"
        rows = dict(line.strip("| ").split(" | ", 1) for line in table.markdown([found], Plan()).splitlines()[2:])
        self.assertIn("**stood still**", rows["the job survives (exit codes)"])
        self.assertEqual(rows["records with effect 2×, epoch 1"], "–")
        self.assertEqual(rows["kill -9 of a worker, restarted: longest pause, s"], "1.0")
        self.assertEqual(rows["whole run, s (undisturbed)"], "50 (50)")


if __name__ == "__main__":
    unittest.main()
