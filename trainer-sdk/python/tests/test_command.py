"""Where the command is looked for, and which one is taken."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

import shoal
from shoal import _command


def command(folder: Path, says: str) -> Path:
    """A command `shoal` that tells this as its version, and notes that it was asked."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "shoal"
    file.write_text(f"#!/bin/sh\necho asked >>'{file}.asked'\necho '{says}'\n")
    file.chmod(0o755)
    return file


OURS = f"shoal {shoal.__version__}"


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of programs of an environment that is not activated, and in which there is no command."""
    monkeypatch.delenv("SHOAL_BINARY", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "environment" / "python"))
    monkeypatch.setattr("sysconfig.get_path", lambda *_: str(tmp_path / "scripts"))
    monkeypatch.setattr(_command, "__file__", str(tmp_path / "target" / "shoal" / "_command.py"))
    _command._check.cache_clear()
    return tmp_path / "environment"


def test_the_environments_command_goes_before_that_on_the_path(environment: Path, tmp_path: Path) -> None:
    on_path = command(tmp_path / "path", OURS)
    assert _command.shoal() == str(on_path)
    for folder in (tmp_path / "target" / "bin", tmp_path / "scripts", environment):
        installed = command(folder, OURS)
        assert _command.shoal() == str(installed)


def test_a_command_that_is_named_goes_before_all(environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command(environment, OURS)
    named = command(tmp_path / "named", OURS)
    monkeypatch.setenv("SHOAL_BINARY", str(named))
    assert _command.shoal() == str(named)


def test_a_command_is_asked_for_its_version_once(environment: Path) -> None:
    file = command(environment, OURS)
    for _ in range(3):
        _command.shoal()
    assert Path(f"{file}.asked").read_text().count("asked") == 1


def test_files_of_settings_have_no_part_in_what_a_program_asks(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = command(environment, OURS)
    told.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo \'{OURS}\' || echo "\\"$SHOAL_CONFIG\\""\n')
    monkeypatch.setenv("SHOAL_CONFIG", "mine.toml")
    assert _command.ask("status") == os.devnull


def test_where_there_is_none_the_words_say_what_to_install(environment: Path) -> None:
    with pytest.raises(shoal.CommandError, match=f"pip install shoal-cli=={shoal.__version__}") as caught:
        _command.shoal()
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("says", ["shoal 0.0.1", "shoal 99.0.0", f"shoal {shoal.__version__}-rc.1"])
def test_another_version_is_refused_with_both_and_the_way_out(environment: Path, says: str) -> None:
    command(environment, says)
    told = says.split()[1]
    ours = shoal.__version__
    with pytest.raises(shoal.CommandError, match=rf"version {told}, the package `shoal` {ours}: pip install shoal-cli=={ours}"):
        _command.shoal()


@pytest.mark.parametrize("says", ["", "shoal", "Usage: shoal (of shellfish)"])
def test_another_program_of_that_name_is_refused(environment: Path, says: str) -> None:
    command(environment, says)
    with pytest.raises(shoal.CommandError, match="is not the command of Shoal"):
        _command.shoal()


def test_what_cannot_be_run_is_refused_by_name(environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torn = tmp_path / "torn"
    torn.write_bytes(b"\x7fELF")
    torn.chmod(0o755)
    for named in (torn, tmp_path / "nowhere"):
        monkeypatch.setenv("SHOAL_BINARY", str(named))
        with pytest.raises(shoal.CommandError, match=f"{named} cannot be run"):
            _command.shoal()


def test_a_script_alone_says_it_in_one_line(
    environment: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    command(environment, "shoal 0.0.1")
    monkeypatch.delenv("SHOAL_MASTER", raising=False)
    with pytest.raises(SystemExit) as caught:
        shoal.main(shoal.Program())
    assert caught.value.code == 2
    assert capsys.readouterr().err.startswith(f"error: {environment}{os.sep}shoal is version 0.0.1")
