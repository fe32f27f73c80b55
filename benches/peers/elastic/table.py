"""The table of all systems, in Markdown."""

FAULTS = {
    "kill": "kill -9 of a worker, restarted",
    "freeze": "a worker frozen for {freeze:g} s",
    "thaw": "… thawed",
    "leave": "a worker leaves (SIGTERM; Shoal: `shoal scale`)",
    "join": "a worker joins",
}
NOTHING = "–"


def markdown(results, plan):
    """Rows of pauses, then of what became of the job, a column for each system."""
    lines = [_line(["", *(result["title"] for result in results)]), _line(["---", *("---:" for _ in results)])]
    lines += [_line([name, *(_cell(result, cell) for result in results)]) for name, cell in _rows(plan)]
    return "\n".join(lines)


def _rows(plan):
    for kind, name in FAULTS.items():
        yield f"{name.format(freeze=plan.freeze_seconds)}: longest pause, s", lambda result, kind=kind: _pause(result, kind)
    yield "the job survives (exit codes)", _survival
    yield "whole run, s (undisturbed)", lambda result: _pair(result, "seconds")
    yield "CPU-seconds of it (undisturbed)", lambda result: _pair(result, "cpu")
    yield "steps thrown away and repeated", lambda result: str(result["struck"]["repeated_steps"])
    yield "steps refused by all", lambda result: str(result["struck"]["refused_steps"])
    for epoch in range(plan.epochs):
        for times in ("0×", "2×"):
            name = f"records with effect {times}, epoch {epoch}"
            yield name, lambda result, epoch=epoch, times=times: _effects(result, epoch, times)
    yield "records given out again (work done twice)", lambda result: f"{result['struck']['given_again']:,}"
    yield "equal to its undisturbed run, bit for bit", _equality
    yield "largest difference (largest weight)", _difference
    yield "held out and told right, % (undisturbed)", _accuracies
    yield "load over 1 min, before and after", lambda result: " to ".join(f"{load:g}" for load in result["struck"]["load"])


def _line(cells):
    return f"| {' | '.join(cells)} |"


def _cell(result, cell):
    try:
        return cell(result)
    except KeyError:
        # A run that ended early has neither a model nor what comes of it.
        return NOTHING


def _pause(result, kind):
    """The longest pause; in brackets the longest until a step beyond all before, where that is longer by half a second."""
    pause, until_new = (result["struck"][name][kind] for name in ("pauses", "pauses_until_new"))
    if pause is None:
        return NOTHING
    if kind == result["struck"]["not_over"]:
        return f"**{pause:.0f}, not over**"
    return f"{pause:.1f} ({until_new:.1f})" if until_new and until_new - pause >= 0.5 else f"{pause:.1f}"


def _survival(result):
    struck = result["struck"]
    codes = ", ".join(f"{name} {code}" for name, code in sorted(struck["codes"].items()))
    if struck["verdict"] != "ended":
        return f"**{struck['verdict']}** (ended by the driver; {codes or 'none had ended'})"
    return f"{'yes' if 'effects' in struck else '**no**'} ({codes})"


def _pair(result, key):
    undisturbed = result.get("undisturbed", {}).get(key)
    return f"{result['struck'][key]:g}" + (f" ({undisturbed:g})" if undisturbed is not None else "")


def _effects(result, epoch, times):
    counts = result["struck"]["effects"][epoch]
    if times == "0×":
        return f"{counts.get(0, 0):,}"
    more = sum(count for often, count in counts.items() if often > 2)
    return f"{counts.get(2, 0):,}" + (f" (and {more:,} oftener)" if more else "")


def _equality(result):
    return "**yes**" if result["struck"]["equal_bits"] else "no"


def _difference(result):
    return f"{result['struck']['difference']:.3g} ({result['struck']['largest']:.1f})"


def _accuracies(result):
    struck, undisturbed = result["struck"]["accuracy"], result["undisturbed"]["accuracy"]
    return f"{100 * struck:.1f} ({100 * undisturbed:.1f})"
