"""One model under one fault schedule on several systems: torchrun elastic with and without DLRover's sampler, torchft, Shoal.

    python3 benches/peers/elastic/run.py                          # all of it: about 20 minutes after the set-up
    python3 benches/peers/elastic/run.py --quick --only shoal     # whether it works: 2 minutes
    python3 benches/peers/elastic/run.py --only torchrun-as-installed --json result.json

Sets up what it needs in a folder that git ignores: PyTorch takes 5 GB; Shoal is built from this checkout, with Rust and a C
compiler. Runs each system undisturbed and under the schedule, judges both, and prints one table in Markdown. Every run has a
folder of its own. Trust counts and bits first, ratios next, seconds last.

The schedule: kill -9 of a worker after a third of epoch 0, and its supervisor restarts it; another is frozen after two thirds,
and thawed 20 s later; one leaves after a third of epoch 1; one joins after two thirds.
"""

import argparse
import dataclasses
import datetime
import fcntl
import json
import os
import platform
import signal
import subprocess
import sys
from pathlib import Path

import drive
import installed
import judge
import table
from systems import SYSTEMS, USUAL

# Enough records for all strikes, and a freeze that is longer than Shoal's lease of 5 s and torchft's timeout of 5 s.
QUICK = {"records": 20_000, "freeze_seconds": 8, "snapshot_steps": 15}
OLDEST_PYTHON = (3, 11)


def arguments():
    """What the command line says."""
    usage = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = ", ".join(name if name in USUAL else f"{name} (only when asked for)" for name in SYSTEMS)
    usage.add_argument("--only", action="append", choices=SYSTEMS, metavar="SYSTEM", help=f"may be repeated: {names}")
    usage.add_argument("--quick", action="store_true", help="a third of the records: shows that it works, and no more")
    usage.add_argument(
        "--pace", type=_seconds, default=drive.Plan.pace, metavar="SECONDS", help="sleep for each 32 records [0.05]"
    )
    usage.add_argument("--limit", type=_seconds, default=drive.Plan.limit_seconds, metavar="SECONDS", help="of one run [480]")
    usage.add_argument("--still", type=_seconds, default=drive.Plan.still_seconds, metavar="SECONDS",
                       help="a run without progress for so long stands still, and is ended [150]")  # fmt: skip
    place = installed.REPOSITORY / "data" / "peers-elastic"
    usage.add_argument(
        "--folder", type=Path, default=place, help="environment, images, runs [data/peers-elastic of the repository]"
    )
    usage.add_argument("--json", type=Path, metavar="FILE", help="write all that was found here as well; must not be there yet")
    told = usage.parse_args()
    if told.json and told.json.exists():
        usage.error(f"--json {told.json}: is there already, and nothing is written over: give another name")
    if told.json and not told.json.absolute().parent.is_dir():
        usage.error(f"--json {told.json}: its folder is not there: make it first")
    return told


def _seconds(text):
    value = float(text)
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text}: give seconds, 0 or more")
    return value


def plan_of(told):
    """The plan that the command line asks for."""
    plan = drive.Plan(pace=told.pace, limit_seconds=told.limit, still_seconds=told.still)
    return dataclasses.replace(plan, **QUICK) if told.quick else plan


def set_up(folder, names):
    """Installs what each system needs; those that cannot be installed are left out, with why."""
    tools, left_out, needed = installed.prepare(folder), {}, {}
    for name in names:
        needs = SYSTEMS[name][1]
        try:
            if needs not in needed:
                installed.install(tools, needs)
                needed[needs] = None
        except installed.CannotInstall as error:
            needed[needs] = str(error)
        if needed[needs] is not None:
            left_out[name] = needed[needs]
    return tools, left_out


def run_system(name, plan, tools, runs):
    """A system undisturbed, then under the schedule, and what is to be said of both."""
    found = {"system": name, "title": SYSTEMS[name][0]}
    folders = {kind: runs / f"{name}-{kind}" for kind in ("undisturbed", "struck")}
    for kind, folder in folders.items():
        print(f"{SYSTEMS[name][0]}, {kind}", flush=True)
        drive.Job(name, plan, tools, folder).run(is_struck=kind == "struck")
    found["undisturbed"] = judge.judge(folders["undisturbed"])
    found["struck"] = judge.judge(folders["struck"], folders["undisturbed"])
    kinds = [kind for kind, folder in folders.items() if judge.model_of(folder)]
    for kind, share in zip(kinds, accuracies(tools, [judge.model_of(folders[kind]) for kind in kinds]), strict=True):
        found[kind]["accuracy"] = share
    return found


def accuracies(tools, models):
    """Of each model the share of held-out images that it tells right, computed by PyTorch of the environment."""
    if not models:
        return []
    settings = json.dumps({"images": str(tools.images), "records": None})
    command = [str(tools.python), str(installed.HERE / "accuracy.py"), *map(str, models)]
    environment = {**os.environ, "PEERS_SETTINGS": settings}
    return json.loads(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)


def machine():
    """Where this ran, and what."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=installed.REPOSITORY, capture_output=True, text=True)
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": f"{_processor()}, {len(os.sched_getaffinity(0))} cores, {platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "commit": commit.stdout.strip() or "unknown",
    }


def _processor():
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def report(results, left_out, plan, about):
    """Prints the table, and what it was made with."""
    print()
    if results:
        print(table.markdown(results, plan))
        print()
    words = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    print(f"{about['date']}, commit {about['commit']}, {about['machine']}, Python {about['python']}, {words}.")
    pace = f"a pace of {plan.pace:g} s for each 32 records"
    print(f"{plan.workers} workers, {plan.epochs} epochs of {plan.records:,} records, {pace}.")
    for name, why in left_out.items():
        print(f"Left out: {SYSTEMS[name][0]}, which could not be installed: {why}")


def compare(told, plan):
    """All systems, one after the other; says whether there is a result."""
    names = list(dict.fromkeys(told.only or USUAL))
    about = machine()
    tools, left_out = set_up(told.folder, names)
    about["versions"] = installed.versions(tools)
    runs = told.folder / "runs" / datetime.datetime.now(datetime.UTC).strftime("%Y%m%d-%H%M%S")
    runs.mkdir(parents=True)
    results = [run_system(name, plan, tools, runs) for name in names if name not in left_out]
    report(results, left_out, plan, about)
    if told.json:
        found = {**about, "plan": dataclasses.asdict(plan), "results": results, "left_out": left_out}
        with told.json.open("x", encoding="utf-8") as file:
            file.write(json.dumps(found, indent=1) + "\n")
    return bool(results)


def main():
    """Holds the folder for itself while it runs."""
    if sys.version_info < OLDEST_PYTHON:
        sys.exit("error: needs Python 3.11 or later, as the package shoal does")
    told = arguments()
    told.folder = told.folder.absolute()
    told.folder.mkdir(parents=True, exist_ok=True)
    # Whatever ends it, it ends what it has started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with (told.folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.exit(f"error: another comparison runs in {told.folder}: wait for it, or give another --folder")
        try:
            if not compare(told, plan_of(told)):
                sys.exit("error: no system could be installed")
        except installed.CannotInstall as error:
            sys.exit(f"error: nothing can be compared without it: {error}")
        except KeyboardInterrupt:
            sys.exit("error: interrupted; what had been started is ended")


if __name__ == "__main__":
    main()
