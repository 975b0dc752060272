"""Running ``captf`` against a world, on its clock."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from tests.deletion_case import Case
from tests.world import TEAM, World

from captf_controllers.cli.captf import Setting, main


@dataclass(frozen=True)
class Answer:
    """What a command printed (both streams as a terminal shows them) and its exit status."""

    code: int
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


@dataclass
class CommandLine:
    """``captf`` with a kubeconfig of the world's server.

    ``between`` happens between two looks of a command that waits, in place of the time that would pass.
    """

    world: World
    kubeconfig: Path
    user: str = "admin"

    def run(self, *arguments: str, between: Callable[[float], object] | None = None) -> Answer:
        setting = Setting(clock=self.world.clock, pause=between)
        given = [*arguments, "--kubeconfig", str(self.kubeconfig), "-n", TEAM]
        answer = CliRunner().invoke(main, given, obj=setting)
        if answer.exception is not None and not isinstance(answer.exception, SystemExit):
            raise answer.exception
        return Answer(answer.exit_code, answer.output)

    def why(self, case: Case) -> Any:
        """The answer to why about the case's object, as a script reads it."""
        answer = self.run("why", f"{case.kind}/{case.name}", "-o", "json")
        assert answer.code == 0, answer.text
        return answer.json

    def commands(self, case: Case) -> list[str]:
        """Every command of the answer to why."""
        return [
            command
            for finding in self.why(case)["findings"]
            for way in finding["exits"]
            for command in way["commands"]
        ]


def words(command: str) -> list[str]:
    """A command as the shell cuts it."""
    return shlex.split(command)
