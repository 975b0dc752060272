"""The checks of the module image's layout, made before anything is done."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence

_CONFIGURATION = (".tf", ".tf.json", ".tofu", ".tofu.json")
_EXECUTE = 0o111


class LayoutError(Exception):
    """The module image lacks what its contract asks for. The text names the path and the fix."""


def check_layout(module: str, command: Sequence[str]) -> None:
    """Checks that the image holds a module and a runtime.

    Args:
        module: directory of the module.
        command: the runtime's argv prefix.

    Raises:
        LayoutError: the module directory is missing, unreadable or without configuration, or the runtime is
            missing, a directory or not executable.
    """
    _check_module(module)
    _check_runtime(command[0] if command else "")


def _check_module(module: str) -> None:
    try:
        with os.scandir(module) as entries:
            found = any(entry.name.endswith(_CONFIGURATION) and not entry.is_dir() for entry in entries)
    except OSError as error:
        raise LayoutError(
            f"the image's module directory {module} cannot be read: {error.strerror}; put the module there, "
            "readable by the image's user"
        ) from None
    if not found:
        raise LayoutError(
            f"the image's module directory {module} holds no configuration: put at least one "
            "*.tf, *.tf.json, *.tofu or *.tofu.json file at its top level"
        )


def _check_runtime(program: str) -> None:
    if not program:
        raise LayoutError("the runtime command is empty: name the terraform or tofu binary of the image")
    if "/" not in program:
        if shutil.which(program) is None:
            raise LayoutError(f"the runtime {program} is not on the image's PATH")
        return
    try:
        mode = os.stat(program).st_mode
    except OSError as error:
        raise LayoutError(
            f"the image's runtime {program} cannot be found: {error.strerror}; put the terraform or tofu "
            "binary there, or a link to it within the image"
        ) from None
    if os.path.isdir(program):
        raise LayoutError(f"the image's runtime {program} is a directory, not the terraform or tofu binary")
    if not mode & _EXECUTE or not os.access(program, os.X_OK):
        raise LayoutError(
            f"the image's runtime {program} is not executable by user {os.geteuid()}: give it mode 0755"
        )


def unexecutable(program: str, error: OSError) -> LayoutError:
    """The error for a runtime that the kernel refused to execute (another architecture, no loader)."""
    return LayoutError(
        f"the image's runtime {program} cannot be executed: {error.strerror}; build the image for this "
        "node's architecture, with a statically linked runtime"
    )
