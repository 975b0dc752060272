"""docs/module-contract.md lists the inputs and outputs that the code knows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from captf_controllers.api.kinds import Role
from captf_controllers.inputs.contract import CONTRACT_INPUTS, CONTRACT_OUTPUTS
from captf_controllers.inputs.variables import META_ARGUMENTS
from captf_controllers.state.outputs import HEALTH_STATES

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "module-contract.md").read_text()
ROLES: tuple[Role, ...] = ("cluster", "machine", "machinepool")


def section(title: str) -> str:
    """The text below a heading, up to the next one."""
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def rows(text: str, first: str) -> list[list[str]]:
    """The cells of the table whose first column has this title."""
    table = text.partition(f"| {first} |")[2].partition("\n\n")[0]
    return [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in table.splitlines()[2:]]


@pytest.mark.parametrize("role", ROLES)
def test_the_inputs_are_those_of_the_root_module(role: Role) -> None:
    common = [row[0].strip("`") for row in rows(section("Inputs of every role"), "Input")]
    written = {
        row[0].strip("`"): (row[1].partition("`, ")[0].strip("`"), "sensitive" in row[1], row[2] == "yes")
        for row in rows(section(f"`{role}`"), "Input")
    }
    known = CONTRACT_INPUTS[role]
    assert common == list(known)[: len(common)]
    assert written == {
        name: (variable.type, variable.sensitive, variable.nullable)
        for name, variable in known.items()
        if name not in common
    }


@pytest.mark.parametrize("role", ROLES)
def test_the_outputs_are_those_that_are_read(role: Role) -> None:
    assert tuple(row[0].strip("`") for row in rows(section(f"`{role}`"), "Output")) == CONTRACT_OUTPUTS[role]


def test_the_states_of_health_are_all_there() -> None:
    states = [name for row in rows(section("`health`"), "`state`") for name in re.findall(r"`(\w+)`", row[0])]
    assert sorted(set(states)) == sorted(HEALTH_STATES)


def test_the_names_that_variables_may_not_have_are_all_there() -> None:
    rule = section("Rules").partition("be called ")[2].partition(".")[0]
    assert tuple(re.findall(r"`(\w+)`", rule)) == META_ARGUMENTS
