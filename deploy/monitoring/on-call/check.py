#!/usr/bin/env python3
"""Holds the alert rules and the dashboard against promtool, their tests and the metrics that there are.

python3 deploy/monitoring/on-call/check.py [PROMTOOL]

promtool reads the groups of rules alone, without the object around them, and compares annotations word by word: in the tests an
alert without annotations is one whatever it says.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
#: What Prometheus makes of a histogram.
SUFFIXES = ("_bucket", "_sum", "_count")
#: Where metrics are named as a whole or, by those who count, without what is put before them.
SOURCES = ("job", "master", "operator", "pserver", "runtime")


def groups(rules: str) -> str:
    """The groups of a PrometheusRule, as a file of rules has them."""
    return textwrap.dedent(rules.split("\nspec:\n", 1)[1])


def without_annotations(text: str) -> str:
    """The groups without what people read."""
    lines, depth = [], None
    for line in text.splitlines():
        indent = len(line) - len(line.lstrip())
        if depth is not None and line.strip() and indent > depth:
            continue
        depth = indent if line.strip() == "annotations:" else None
        if depth is None:
            lines.append(line)
    return "\n".join(lines) + "\n"


def check_words(name: str, said: set[str]) -> None:
    """Every metric of an expression is one that some role shows."""
    sources = "".join(path.read_text() for folder in SOURCES for path in sorted((ROOT / folder).rglob("*.rs")))
    for metric in sorted(said):
        stems = [metric, *(metric.removesuffix(suffix) for suffix in SUFFIXES)]
        # Counters are named without `shoal_trainers_`, `shoal_pserver_` or `shoal_` before them.
        ends = [re.sub(r"^shoal_(?:trainers?_|pserver_)?", "", stem) for stem in stems]
        ends += [end.removesuffix("_total") for end in ends]
        if not any(f'"{word}"' in sources or f"({word})" in sources or f" {word}:" in sources for word in [*stems, *ends]):
            sys.exit(f"{name}: no role shows {metric}")
    print(f"{name}: {len(said)} metrics, each of which some role shows")


def metrics(expressions: list[str]) -> set[str]:
    """The metrics of expressions."""
    return {word for expression in expressions for word in re.findall(r"\bshoal_(?!dev_)[a-z0-9_]+", expression)}


def main() -> None:
    """Everything, or an exit code of 1."""
    promtool = sys.argv[1] if len(sys.argv) > 1 else "promtool"
    text = groups((HERE / "rules.yaml").read_text())
    tests = (HERE / "rules_test.yaml").read_text()
    alerts = re.findall(r"- alert: (\w+)", text)
    untested = [alert for alert in alerts if not re.search(rf"alertname: {alert}\n\s+exp_alerts", tests)]
    silent = [alert for alert in alerts if not re.search(rf"alertname: {alert}\}}", tests)]
    if untested or silent or len(set(alerts)) < len(alerts):
        sys.exit(f"rules_test.yaml: nothing makes {untested} fire, nothing leaves {silent} quiet")
    with tempfile.TemporaryDirectory() as folder:
        whole, bare, test = (Path(folder) / name for name in ("whole.yaml", "rules.groups.yaml", "test.yaml"))
        whole.write_text(text)
        bare.write_text(without_annotations(text))
        test.write_text(tests)
        subprocess.run([promtool, "check", "rules", str(whole)], check=True)
        subprocess.run([promtool, "test", "rules", str(test)], check=True)
    check_words("rules.yaml", metrics([text]))
    dashboard = json.loads((HERE / "dashboard.json").read_text())
    panels = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
    expressions = [target["expr"] for panel in panels for target in panel["targets"]]
    if len({panel["id"] for panel in dashboard["panels"]}) < len(dashboard["panels"]):
        sys.exit("dashboard.json: two panels have one id")
    with tempfile.TemporaryDirectory() as folder:
        # Each expression as a rule: promtool parses it.
        file = Path(folder) / "expressions.yaml"
        plain = [re.sub(r"\$__rate_interval|\$__range", "5m", each) for each in expressions]
        rules = [{"record": f"panel:{at}", "expr": expression} for at, expression in enumerate(plain)]
        file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
        subprocess.run([promtool, "check", "rules", str(file)], check=True)
    check_words("dashboard.json", metrics(expressions))


if __name__ == "__main__":
    main()
