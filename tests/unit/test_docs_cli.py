"""docs/cli.md knows every command and option, and no other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click

from captf_controllers.cli.captf import main
from captf_controllers.cli.diagnosis import OWN_CODES

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "cli.md").read_text()


def commands(group: click.Group, path: str) -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


def options() -> set[str]:
    found = {"--help", "-h", "--version"}
    for _, command in commands(main, "captf"):
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                found |= {*parameter.opts, *parameter.secondary_opts}
    return found


def test_every_command_is_there() -> None:
    for path, _ in commands(main, "captf"):
        assert f"`{path}" in PAGE, path


def test_the_options_are_those_that_there_are() -> None:
    written = set(re.findall(r"(?<![\w-])(--[a-z][a-z-]+|-[a-z])(?![\w-])", PAGE))
    assert written == options()


def test_every_code_of_its_own_is_listed() -> None:
    listed = PAGE.partition("Codes that are no reason of a condition: ")[2].partition(".\n")[0]
    assert set(re.findall(r"`(\w+)`", listed)) == OWN_CODES
