"""What was built: the commit, which the image knows, and the contract with Cluster API."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final

import click

from captf_controllers.api.labels import CONTRACT_VERSION

#: Version of Cluster API's contract, the last part of the label that the CRDs carry.
CONTRACT: Final = CONTRACT_VERSION.rpartition("/")[2]
#: Set in the image.
COMMIT_VARIABLE: Final = "CAPTF_COMMIT"


def commit() -> str:
    """The commit that this build is of; `unknown` outside of an image."""
    return os.environ.get(COMMIT_VARIABLE, "") or "unknown"


def version_option(program: str) -> Callable[[Any], Any]:
    """The flag ``--version`` of a program, which looks the version up when it is given."""

    def show(ctx: click.Context, param: click.Parameter, given: bool) -> None:
        if not given or ctx.resilient_parsing:
            return
        from captf_controllers import __version__

        click.echo(f"{program} {__version__}")
        ctx.exit()

    return click.option(
        "--version",
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=show,
        help="Show the version and exit.",
    )
