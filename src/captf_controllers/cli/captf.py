"""``captf``: the command line of the people who run and repair clusters. Also a kubectl plugin.

Each command imports what it needs when it runs, so that help and completion answer at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from typing import TYPE_CHECKING, Any, Literal

import click

from captf_controllers.cli.build import version_option
from captf_controllers.cli.durations import DURATION

if TYPE_CHECKING:
    from captf_controllers.cli.connection import Connection
    from captf_runtime.clock import Clock

HELP = {"help_option_names": ["-h", "--help"]}


@dataclass(slots=True)
class Setting:
    """What a command runs in. Tests give a clock of theirs, and what happens between two looks at an object."""

    clock: Clock | None = None
    pause: Callable[[float], object] | None = None
    place: dict[str, str] = field(default_factory=dict)

    @contextmanager
    def connect(self) -> Iterator[Connection]:
        """Open the connection that the options of the command describe."""
        from captf_controllers.cli.connection import Place, connect
        from captf_runtime.clock import SYSTEM_CLOCK

        with connect(Place(**self.place), self.clock or SYSTEM_CLOCK) as connection:
            yield connection

    def pause_of(self, connection: Connection) -> Callable[[float], object]:
        """What waits between two looks."""
        return self.pause or connection.clock.sleep


def command(
    parent: click.Group, name: str, **settings: Any
) -> Callable[[Callable[..., None]], click.Command]:
    """Register a command about one object: its arguments, and the options that every command has."""

    def register(function: Callable[..., None]) -> click.Command:
        @wraps(function)
        def run(setting: Setting, kubeconfig: str, context: str, namespace: str, **given: Any) -> None:
            setting.place = {"kubeconfig": kubeconfig, "context": context, "namespace": namespace}
            function(setting, **given)

        decorated: Callable[..., Any] = click.pass_obj(run)
        for option in (
            click.option(
                "-n", "--namespace", default="", help="Namespace; the context's own when not given."
            ),
            click.option(
                "--context", default="", help="Context of the kubeconfig; its current one when not given."
            ),
            click.option(
                "--kubeconfig",
                default="",
                help="Kubeconfig file. Otherwise $KUBECONFIG, the in-cluster configuration, then "
                "$HOME/.kube/config.",
            ),
            click.argument("target", nargs=-1, metavar="KIND NAME"),
        ):
            decorated = option(decorated)
        return parent.command(name, **settings)(decorated)

    return register


output = click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    help="text for people, json for scripts.",
)


@click.group("captf", context_settings=HELP)
@version_option("captf")
@click.pass_context
def main(ctx: click.Context) -> None:
    """Ask about CAPTF's objects and help those that are stuck.

    KIND NAME is one TerraformCluster, TerraformMachine or TerraformMachinePool as kubectl takes it: the kind in
    the singular, in the plural or short (tfc, tfm, tfmp), or kind/name in one word.
    """
    if ctx.obj is None:
        ctx.obj = Setting()


@command(main, "why", short_help="Say what an object waits for, and how to end it.")
@output
def why(setting: Setting, target: tuple[str, ...], output: str) -> None:
    """Say what an object waits for, since when, what ends it, and the commands that do.

    Only reads. Exit status 0 whatever the answer is; the json form says in "healthy" whether anything is wrong.
    """
    from captf_controllers.cli.target import parse_target

    named = parse_target(target)
    with setting.connect() as connection:
        from captf_controllers.cli.diagnosis import as_json, as_text
        from captf_controllers.cli.why import ask

        diagnosis = ask(connection, named)
        click.echo(as_json(diagnosis) if output == "json" else as_text(diagnosis), nl=output == "json")


def releases(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options of the commands that change something and may wait for what follows."""
    for option in (
        click.option("-y", "--yes", is_flag=True, help="Do not ask; needed where there is no terminal."),
        click.option(
            "--timeout",
            type=DURATION,
            default="10m",
            show_default=True,
            help="How long to wait; then the exit status is 1.",
        ),
    ):
        function = option(function)
    return function


def _release(
    setting: Setting, target: tuple[str, ...], verb: Literal["abandon", "retain"], **wish: Any
) -> None:
    from captf_controllers.cli.target import parse_target

    named = parse_target(target)
    with setting.connect() as connection:
        from captf_controllers.cli.release_commands import Wish, release

        release(connection, named, verb, Wish(**wish), setting.pause_of(connection))


wait = click.option(
    "--wait", is_flag=True, help="Follow the object until it is gone, and say what it waits for meanwhile."
)


@command(main, "abandon", short_help="Let an object go; its infrastructure runs on untracked.")
@wait
@releases
def abandon(setting: Setting, target: tuple[str, ...], **wish: Any) -> None:
    """Let a deletion end without a destroy; what the module created runs on and nothing tracks it.

    Shows what is left running and what is lost, says whether it acts now or only once a destroy failed, and asks
    before it sets the annotation captf.io/abandon-infrastructure. captf retain loses nothing; prefer it.
    """
    _release(setting, target, "abandon", **wish)


@command(main, "retain", short_help="Let an object go and keep its state for a later one.")
@wait
@releases
def retain(setting: Setting, target: tuple[str, ...], **wish: Any) -> None:
    """Let a deletion end without a destroy and keep the state, its backups and the inputs.

    Shows what is left running and what is kept, and asks before it sets spec.deletionPolicy: Retain on the
    object.
    """
    _release(setting, target, "retain", **wish)


@main.group("state", context_settings=HELP)
def state() -> None:
    """Look at the state of an object and its backups, and restore one."""


@command(state, "list", short_help="List the addresses of the resources in the state.")
@output
def list_(setting: Setting, target: tuple[str, ...], output: str) -> None:
    """List the address of every managed resource instance in the state of an object."""
    from captf_controllers.cli.target import parse_target

    named = parse_target(target)
    with setting.connect() as connection:
        from captf_controllers.cli.state_commands import list_addresses

        list_addresses(connection, named, as_json=output == "json")


@command(state, "show", short_help="Show serial, lineage, lock and outputs of the state.")
@click.option(
    "--show-sensitive",
    is_flag=True,
    help="Print the values of the outputs. Every output counts as sensitive.",
)
@output
def show(setting: Setting, target: tuple[str, ...], output: str, show_sensitive: bool) -> None:
    """Show what the state of an object is: serial, lineage, version, resources, lock, outputs by name and type."""
    from captf_controllers.cli.target import parse_target

    named = parse_target(target)
    with setting.connect() as connection:
        from captf_controllers.cli.state_commands import show as show_state

        show_state(connection, named, as_json=output == "json", show_sensitive=show_sensitive)


@command(state, "backups", short_help="List the backups of the state.")
@output
def backups(setting: Setting, target: tuple[str, ...], output: str) -> None:
    """List the backups of the state of an object, newest first, each checked against its digest."""
    from captf_controllers.cli.target import parse_target

    named = parse_target(target)
    with setting.connect() as connection:
        from captf_controllers.cli.state_commands import backups as list_backups

        list_backups(connection, named, as_json=output == "json")


@command(state, "restore", short_help="Restore a backup of the state.")
@click.option("--serial", type=click.IntRange(min=1), required=True, help="Serial of a complete backup.")
@click.option("--wait/--no-wait", default=True, show_default=True, help="Wait for the restore and report.")
@releases
def restore(setting: Setting, target: tuple[str, ...], serial: int, **wish: Any) -> None:
    """Restore a backup of the state of an object.

    Shows what the state describes now and afterwards, asks, sets the annotation captf.io/restore-state, and
    waits for the Job that the manager starts. The exit status is 1 when the restore fails.
    """
    from captf_controllers.cli.target import parse_target

    named = parse_target(target)
    with setting.connect() as connection:
        from captf_controllers.cli.release_commands import Wish
        from captf_controllers.cli.state_commands import restore as restore_state

        restore_state(connection, named, serial, Wish(**wish), setting.pause_of(connection))


if __name__ == "__main__":
    main()
