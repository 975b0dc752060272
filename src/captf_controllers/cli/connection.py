"""The connection of a command to the API server, and what its errors say on one line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import click

from captf_controllers.api.kinds import workload_kind
from captf_controllers.api.typed import ObjectShapeError
from captf_controllers.cli.target import Target
from captf_runtime.client import Client
from captf_runtime.client.config import ConfigError
from captf_runtime.client.errors import ApiError, ConnectionFailed, Forbidden, NotFound, Unauthorized
from captf_runtime.clock import SYSTEM_CLOCK, Clock
from captf_runtime.objects import Kind, Object

#: The most connections of a command, which asks one thing after the other.
CONNECTIONS = 2


@dataclass(frozen=True, slots=True)
class Place:
    """Where a command looks: the options that every command has. Empty means not given."""

    kubeconfig: str = ""
    context: str = ""
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class Connection:
    """An open client and the namespace that the command works in."""

    client: Client
    namespace: str
    clock: Clock

    def get(self, target: Target) -> Object:
        """The object that the command is about. Raises click.ClickException when there is none."""
        kind = workload_kind(target.kind)
        try:
            return self.client.get(kind, target.name, self.namespace)
        except NotFound as error:
            raise click.ClickException(_absent(error, kind, target, self.namespace)) from None


@contextmanager
def connect(place: Place, clock: Clock = SYSTEM_CLOCK) -> Iterator[Connection]:
    """Open the connection; an error of the API server inside the block ends the command with one line.

    The namespace is the one given, else that of the kubeconfig's context, else ``default``.
    """
    try:
        with Client.from_config(
            kubeconfig=place.kubeconfig or None,
            context=place.context or None,
            user_agent="captf-cli",
            pool_size=CONNECTIONS,
        ) as client:
            yield Connection(client, place.namespace or client.namespace or "default", clock)
    except ConfigError as error:
        raise click.ClickException(one_line(str(error))) from None
    except ObjectShapeError as error:
        raise click.ClickException(one_line(str(error))) from None
    except ApiError as error:
        raise click.ClickException(explain(error)) from None


def explain(error: ApiError) -> str:
    """What a failed request means for the person at the terminal, on one line."""
    if isinstance(error, Forbidden):
        return one_line(f"forbidden: you may not {permission(error)}. {error.message}")
    if isinstance(error, Unauthorized):
        return "the API server does not accept your credentials: log in again or choose another --context"
    if isinstance(error, ConnectionFailed):
        return one_line(f"the API server cannot be reached: {error.message}")
    return one_line(str(error))


def permission(error: ApiError) -> str:
    """The verb and the resource that a refused request needs, from its method and path.

    ``list secrets in namespace team-a``, ``patch terraformmachines.infrastructure.cluster.x-k8s.io m1 in
    namespace team-a``.
    """
    parts = [part for part in error.path.split("/") if part]
    group = ""
    if parts[:1] == ["apis"]:
        group, parts = parts[1] if len(parts) > 1 else "", parts[3:]
    else:
        parts = parts[2:]
    namespace = ""
    if parts[:1] == ["namespaces"] and len(parts) > 2:
        namespace, parts = parts[1], parts[2:]
    resource, name, subresource = (*parts, "", "", "")[:3]
    verbs = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
    verb = verbs.get(error.method, "get" if name else "list")
    what = f"{resource}/{subresource}" if subresource else resource
    what = f"{what}.{group}" if group else what
    return " ".join(
        part for part in (verb, what, name, f"in namespace {namespace}" if namespace else "") if part
    )


def one_line(text: str) -> str:
    """A text without line breaks and control characters."""
    flat = " ".join(text.split())
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in flat)


def _absent(error: NotFound, kind: Kind, target: Target, namespace: str) -> str:
    if error.details.get("name") != target.name:
        return f"the cluster does not serve {kind.resource}: install CAPTF, or choose another --context"
    return f'{target.resource} "{target.name}" not found in namespace {namespace}'
