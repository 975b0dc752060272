"""Naming an object as kubectl does."""

from __future__ import annotations

import click
import pytest

from captf_controllers.api.kinds import GROUP, WORKLOAD_KINDS
from captf_controllers.cli import target
from captf_controllers.cli.target import Target, parse_target


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("terraformmachine", "TerraformMachine"),
        ("TerraformMachine", "TerraformMachine"),
        ("terraformmachines", "TerraformMachine"),
        ("tfm", "TerraformMachine"),
        ("tfc", "TerraformCluster"),
        ("tfmp", "TerraformMachinePool"),
        (f"terraformmachinepools.{GROUP}", "TerraformMachinePool"),
        (f"terraformclusters.v1alpha1.{GROUP}", "TerraformCluster"),
    ],
)
def test_every_form_of_a_kind(text: str, kind: str) -> None:
    assert parse_target([text, "m1"]) == Target(kind, "m1")
    assert parse_target([f"{text}/m1"]) == Target(kind, "m1")


def test_the_names_are_those_of_the_registered_kinds() -> None:
    plurals = {kind.kind: kind.plural for kind in WORKLOAD_KINDS}
    assert {kind: plural for kind, (plural, _) in target._NAMES.items()} == plurals
    assert {kind.group for kind in WORKLOAD_KINDS} == {target._GROUP}


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["tfm"],
        ["tfm", "a", "b"],
        ["tfm/a", "b"],
        ["tfm", "a/b"],
        ["tfm/"],
        ["machine", "a"],
        ["terraformmachine.cluster.x-k8s.io", "a"],
    ],
)
def test_anything_else_is_a_usage_error(arguments: list[str]) -> None:
    with pytest.raises(click.UsageError):
        parse_target(arguments)


def test_a_foreign_kind_is_answered_with_the_kinds_that_there_are() -> None:
    with pytest.raises(click.UsageError, match=r"terraformcluster \(tfc\), terraformmachine \(tfm\)"):
        parse_target(["machine", "a"])
