"""Judges runs: pauses, repeated steps and wasted work from the logs, effects of records and bits from the final model.

Needs nothing but Python. Events are what workers say, by time; strikes are what the driver did. The time between two optimizer
steps belongs to the first strike within it, or else to the last before it; a strike's pause is the longest of its times.
"""

import array
import collections
import itertools
import json
import struct
import sys

# Names of the oracle's rows, one for each epoch.
ORACLE = "seen."


def read_lines(path):
    """The whole lines of a log; a worker that was killed may have left half of one."""
    with path.open(encoding="utf-8") as log:
        return [json.loads(line) for line in log if line.endswith("\n")]


def read_tensors(path):
    """Of a file of safetensors each tensor's values, by name."""
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    tensors = {}
    for name, told in json.loads(raw[8 : 8 + length]).items():
        if name == "__metadata__":
            continue
        if told["dtype"] != "F32":
            raise ValueError(f"{path}: tensor {name!r} is of {told['dtype']}, and all of LeNet's are of F32")
        begin, end = told["data_offsets"]
        values = array.array("f", raw[8 + length + begin : 8 + length + end])
        if sys.byteorder == "big":
            values.byteswap()
        tensors[name] = values
    return tensors


def with_steps(events):
    """Adds the steps of workers that only say what they are given: a step is given out when the one before is done."""
    if any(event["event"] == "step" for event in events):
        return events
    furthest, added = 0, []
    for event in events:
        if event["event"] == "given" and event["step"] > furthest:
            furthest = event["step"]
            added.append({**event, "event": "step", "step": furthest - 1})
    return sorted([*events, *added], key=lambda event: event["t"])


def pauses(moments, strikes):
    """Of each strike by its kind the longest time between two moments, in seconds; None where no moment came after it."""
    longest = {kind: None for _, kind in strikes}
    for before, after in itertools.pairwise(moments):
        within = [kind for at, kind in strikes if before <= at < after]
        earlier = [kind for at, kind in strikes if at < before]
        kind = within[0] if within else earlier[-1] if earlier else None
        if kind is not None:
            longest[kind] = max(longest[kind] or 0, after - before)
    return longest


def advances(steps):
    """The moments of steps beyond all that were done before."""
    furthest, moments = -1, []
    for event in steps:
        if event["progress"] > furthest:
            furthest = event["progress"]
            moments.append(event["t"])
    return moments


def repeated_steps(events):
    """Steps that a worker has done again in another process: their results were thrown away."""
    processes = collections.defaultdict(set)
    for event in events:
        if event["event"] == "step" and "records" not in event:
            processes[event["worker"], event["epoch"], event["step"]].add(event["pid"])
    again = collections.defaultdict(int)
    for (_, epoch, step), done in processes.items():
        again[epoch, step] = max(again[epoch, step], len(done) - 1)
    return sum(again.values()) + _given_again(events)


def _given_again(events):
    """Steps all of whose records were given out again after a later step had begun, where only what is given is said."""
    if any(event["event"] == "step" and "records" not in event for event in events):
        return 0
    furthest, whole, late = -1, collections.defaultdict(set), collections.defaultdict(set)
    for event in events:
        if event["event"] == "given":
            furthest = max(furthest, event["step"])
            where = late if event["step"] < furthest else whole
            where[event["step"]].update(event["records"])
    return sum(late[step] >= (whole[step] | late[step]) for step in late)


def given_again(events):
    """How many times a record was given out beyond its first time in an epoch, over all records."""
    given = collections.Counter()
    for event in events:
        if event["event"] == "given":
            given.update((event["epoch"], record) for record in event["records"])
    return sum(times - 1 for times in given.values())


def effects(tensors):
    """Of each epoch how many records took effect how often, and the greatest distance of a count from a whole number."""
    counts, rounding = [], 0.0
    for name in sorted(name for name in tensors if name.startswith(ORACLE)):
        rounding = max(rounding, max(abs(value - round(value)) for value in tensors[name]))
        counts.append(dict(sorted(collections.Counter(map(round, tensors[name])).items())))
    return counts, rounding


def difference(tensors, others):
    """Whether two nets are equal to the bit, their largest difference, and the largest value."""
    names = sorted(name for name in tensors if name in others and name.startswith(("cnn.", "head.")))
    if not names:
        raise ValueError("the models have no parameter in common")
    equal = all(tensors[name].tobytes() == others[name].tobytes() for name in names)
    pairs = [pair for name in names for pair in zip(tensors[name], others[name], strict=True)]
    return equal, max(abs(a - b) for a, b in pairs), max(max(abs(a), abs(b)) for a, b in pairs)


def model_of(folder):
    """The final model of a run, or None where there is none."""
    for path in (folder / "run" / "model.safetensors", folder / "final-0.safetensors"):
        if path.exists():
            return path
    return None


def judge(folder, undisturbed=None):
    """What is to be said of one run, as JSON has it; `undisturbed` is the folder of the run to compare with."""
    driver = read_lines(folder / "driver.jsonl")
    events = [event for path in (folder / "logs").glob("*.jsonl") for event in read_lines(path)]
    events = with_steps(sorted(events, key=lambda event: event["t"]))
    steps = [event for event in events if event["event"] == "step"]
    strikes = [(line["t"], line["kind"]) for line in driver if line["event"] == "strike"]
    moments = [event["t"] for event in steps]
    found = {key: value for key, value in driver[-1].items() if key not in ("t", "event")}
    # A run that was ended while it stood has a pause that lasted until then.
    ends = [] if found["verdict"] == "ended" else [driver[-1]["t"]]
    found["not_over"] = strikes[-1][1] if strikes and ends else None
    found["pauses"] = pauses(moments + ends, strikes)
    found["pauses_until_new"] = pauses(advances(steps) + ends, strikes)
    found["repeated_steps"] = repeated_steps(events)
    found["refused_steps"] = len({event["step"] for event in events if event["event"] == "refused"})
    found["given_again"] = given_again(events)
    found["folder"] = str(folder)
    model = model_of(folder)
    if model is None:
        return found
    tensors = read_tensors(model)
    found["effects"], found["rounding"] = effects(tensors)
    reference = model_of(undisturbed) if undisturbed else None
    if reference is not None:
        found["equal_bits"], found["difference"], found["largest"] = difference(tensors, read_tensors(reference))
    return found
