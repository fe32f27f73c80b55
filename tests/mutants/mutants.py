"""Removes one guard of the code after another, and counts the seeds that the simulation takes to notice.

    python3 tests/mutants/mutants.py --check             every guard is where this file says (cargo test does this)
    python3 tests/mutants/mutants.py [NAME...]           all of them, or these: minutes each
    python3 tests/mutants/mutants.py --seeds 10000       how many seeds each is given
    python3 tests/mutants/mutants.py --tests             what seeds do not notice goes to the tests of its package, and
                                                         to the directed ones

Each is one replacement in one file, which must be unchanged and is put back. Prints rows for tests/README.md. Exits with
0 only if every guard was missed by some seed, or by some test.
"""

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

from guards import GUARDS

ROOT = Path(__file__).resolve().parents[2]
# Seeds of one call: few at first, for most guards are missed at once.
STEPS = [32, 96, 384, 1536]
# What a call may take for each seed, in seconds: a mutant may loop for ever.
SECONDS_PER_SEED = 2.0
# Of the profile that tests are built with: it is optimised, and built in a third of the time.
SIMULATE = ["cargo", "build", "--quiet", "-p", "shoal-tests", "--bin", "simulate"]
# What the tests of a package, or the directed ones, may take with their build, in seconds.
SECONDS_OF_TESTS = 600


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--check", action="store_true", help="only look whether each guard is there")
    parser.add_argument("--seeds", type=int, default=10_000, help="seeds for each guard [default: 10000]")
    parser.add_argument("--tests", action="store_true", help="try tests where seeds notice nothing")
    arguments = parser.parse_args()
    known = {guard.name for guard in GUARDS}
    unknown = [name for name in arguments.names if name not in known]
    if unknown:
        parser.error(f"no such guard: {', '.join(unknown)}; there are {', '.join(sorted(known))}")
    faults = [fault for guard in GUARDS for fault in misplaced(guard)]
    for fault in faults:
        print(fault, file=sys.stderr)
    if faults or arguments.check:
        print(f"{len(GUARDS)} guards, {len(faults)} not where guards.py says")
        return 1 if faults else 0
    chosen = [guard for guard in GUARDS if not arguments.names or guard.name in arguments.names]
    missed = [guard for guard in chosen if not is_found(guard, arguments)]
    print(f"{len(chosen) - len(missed)} of {len(chosen)} guards are missed when they are gone")
    return 1 if missed else 0


def misplaced(guard):
    for at, (file, old, _) in enumerate(guard.changes):
        count = (ROOT / file).read_text(encoding="utf-8").count(old)
        if count != 1:
            yield f"{guard.name}: its change {at + 1} is {count} times in {file}, not once: mend guards.py"


def is_found(guard, arguments):
    files = {file for file, _, _ in guard.changes}
    if subprocess.run(["git", "diff", "--quiet", "HEAD", "--", *files], cwd=ROOT).returncode != 0:
        sys.exit(f"{guard.name}: {', '.join(sorted(files))}: changed and not committed; commit first")
    originals = {file: (ROOT / file).read_text(encoding="utf-8") for file in files}
    try:
        for file, old, new in guard.changes:
            path = ROOT / file
            path.write_text(path.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
        # Seconds for each guard instead of minutes.
        environment = {**os.environ, "CARGO_INCREMENTAL": "1"}
        built = subprocess.run(SIMULATE, cwd=ROOT, env=environment, text=True, capture_output=True)
        if built.returncode != 0:
            print(f"{built.stderr}{guard.name}: without it nothing is built: mend guards.py", file=sys.stderr)
            return False
        row = first_found(arguments.seeds)
        if row is None and arguments.tests:
            row = first_test(files)
    finally:
        for file, text in originals.items():
            (ROOT / file).write_text(text, encoding="utf-8")
    print(f"| {guard.what} | `{guard.name}` | {row or f'not by {arguments.seeds} seeds'} |", flush=True)
    return row is not None


def first_found(seeds):
    """What the first seed that breaks says, and which it is."""
    simulate = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug" / "simulate"
    begin = 0
    while begin < seeds:
        step = next((step for step in STEPS if begin < step), STEPS[-1])
        end = min(begin + step, seeds)
        command = [simulate, "--depth", "machine", "--seeds", f"{begin}..{end}"]
        try:
            said = subprocess.run(
                command, cwd=ROOT, text=True, capture_output=True, timeout=60 + SECONDS_PER_SEED * (end - begin)
            )
        except subprocess.TimeoutExpired:
            return f"one of seeds {begin}..{end} never ends | hang"
        broken = re.findall(r"^BROKEN (\d+): (.*)$", said.stdout, flags=re.MULTILINE)
        if broken:
            seed, what = broken[0]
            return f"{seed} | {len(broken)} of {end - begin} | {what.split(':')[0][:60]}"
        if said.returncode != 0 and "seeds never met" not in said.stdout:
            panic = next((line for line in said.stderr.splitlines() if "panicked" in line), "no word")
            return f"one of {begin}..{end} | panic | {panic[:60]}"
        begin = end
    return None


def first_test(files):
    """The first test that fails, of the packages of these files, or of the directed ones."""
    packages = sorted({f"shoal-{file.split('/')[0]}" for file in files})
    own = ["--lib", *(word for package in packages for word in ("-p", package))]
    for chosen in own, ["-p", "shoal-tests", "--test", "sim", "directed::"]:
        command = ["cargo", "test", "--no-fail-fast", *chosen]
        try:
            said = subprocess.run(command, cwd=ROOT, text=True, capture_output=True, timeout=SECONDS_OF_TESTS)
        except subprocess.TimeoutExpired:
            return f"a test of `{' '.join(chosen)}` never ends | hang"
        failed = re.findall(r"^test (\S+).* \.\.\. FAILED$", said.stdout, flags=re.MULTILINE)
        if failed:
            return f"test `{failed[0]}` | {len(failed)} fail"
        if said.returncode != 0:
            sys.exit(f"{said.stderr}`{' '.join(command)}` ends with {said.returncode}, and no test failed")
    return None


if __name__ == "__main__":
    sys.exit(main())
