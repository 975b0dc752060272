"""Which object a command is about, in every form that kubectl takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import click

#: Plural and short name of each kind, by the kind's name. Written out here and not taken from the registered
#: kinds: ``captf --help`` must not import what it does not need.
_NAMES = {
    "TerraformCluster": ("terraformclusters", "tfc"),
    "TerraformMachine": ("terraformmachines", "tfm"),
    "TerraformMachinePool": ("terraformmachinepools", "tfmp"),
}
_GROUP = "infrastructure.cluster.x-k8s.io"
_KINDS = {alias: kind for kind, (plural, short) in _NAMES.items() for alias in (kind.lower(), plural, short)}


@dataclass(frozen=True, slots=True)
class Target:
    """Kind, in CamelCase, and name of an object."""

    kind: str
    name: str

    @property
    def resource(self) -> str:
        """The kind as kubectl takes it in the singular."""
        return self.kind.lower()


def parse_kind(text: str) -> str:
    """The kind that a resource argument names: singular, plural or short, with or without its group.

    Raises:
        click.UsageError: it names none of the three kinds.
    """
    resource, _, rest = text.strip().lower().partition(".")
    kind = _KINDS.get(resource)
    group = rest.removeprefix("v1alpha1.")
    if kind is None or (rest and group != _GROUP):
        known = ", ".join(f"{name.lower()} ({short})" for name, (_, short) in _NAMES.items())
        raise click.UsageError(f"{text!r} is no kind that CAPTF runs modules for: give one of {known}")
    return kind


def parse_target(arguments: Sequence[str]) -> Target:
    """The object that ``KIND NAME`` or ``KIND/NAME`` names.

    Raises:
        click.UsageError: the arguments are neither form.
    """
    match list(arguments):
        case [one] if "/" in one:
            kind, _, name = one.partition("/")
        case [kind, name] if "/" not in kind and "/" not in name:
            pass
        case _:
            raise click.UsageError("name one object, as KIND NAME or KIND/NAME")
    if not name:
        raise click.UsageError("the name of the object is empty: name one object, as KIND NAME or KIND/NAME")
    return Target(parse_kind(kind), name)
