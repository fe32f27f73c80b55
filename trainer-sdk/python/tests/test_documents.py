"""What docstrings and documents show is what happens."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest

import shoal

ROOT = Path(__file__).resolve().parents[3]
PAGES = ["docs/python.md", "docs/python-limits.md", "docs/coming-from.md", "trainer-sdk/python/README.md"]
DOCUMENTS = [ROOT / page for page in PAGES if (ROOT / page).exists()]
MODULES = sorted(module.name for module in pkgutil.walk_packages(shoal.__path__, "shoal."))
#: What only is where PyTorch is.
TORCH = {"shoal.torch"}


def of_torch(name: str) -> bool:
    return any(name == each or name.startswith(f"{each}.") for each in TORCH)


@pytest.mark.parametrize(
    "name", ["shoal", *(pytest.param(name, marks=pytest.mark.torch) if of_torch(name) else name for name in MODULES)]
)
def test_docstrings_show_what_happens(name: str) -> None:
    results = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert results.failed == 0


def blocks(document: str, language: str) -> list[tuple[int, str]]:
    """The fenced blocks of a language, each with the number of its first line."""
    found = re.finditer(rf"^```{language}\n(.*?)^```$", document, re.MULTILINE | re.DOTALL)
    return [(document.count("\n", 0, block.start(1)), block[1]) for block in found]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda file: file.name)
def test_sessions_in_documents_are_what_happens(document: Path) -> None:
    parser, runner = doctest.DocTestParser(), doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for line, session in blocks(document.read_text(), "pycon"):
        runner.run(parser.get_doctest(session, {"shoal": shoal}, document.name, str(document), line))
    assert runner.summarize().failed == 0


@pytest.mark.torch
@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda file: file.name)
def test_programs_in_documents_name_what_there_is(document: Path) -> None:
    importlib.import_module("shoal.torch")
    for line, program in blocks(document.read_text(), "python"):
        tree = ast.parse(program, document.name)
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and DOTTED.fullmatch(named := ast.unparse(node)):
                assert known(named), f"{document.name}:{line + node.lineno}: there is no {named}"
            if isinstance(node, ast.Call) and DOTTED.fullmatch(named := ast.unparse(node.func)):
                assert not (unknown := unknown_arguments(node, named)), f"{document.name}: {named} has no {unknown}"


#: A name in the package, not what a call gives.
DOTTED = re.compile(r"shoal(\.\w+)+")


def known(named: str) -> bool:
    return lookup(named) is not None


def lookup(named: str) -> object:
    """What a dotted name stands for; None if there is no such thing."""
    found: object = shoal
    for part in named.split(".")[1:]:
        found = getattr(found, part, None)
        if found is None:
            return None
    return found


def unknown_arguments(call: ast.Call, named: str) -> set[str]:
    """Arguments by name that what is called does not take."""
    taken = inspect.signature(lookup(named)).parameters.values()  # type: ignore[arg-type]
    if any(each.kind is each.VAR_KEYWORD for each in taken):
        return set()
    return {keyword.arg for keyword in call.keywords if keyword.arg} - {each.name for each in taken}
