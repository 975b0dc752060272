"""The runner as a file: what `copy` puts into another container, and what `version` says of it."""

from __future__ import annotations

import io
import os
import platform
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

NAME = "captf-runner"
VERSION = "0.1.0"

_MODE = 0o755


def is_frozen() -> bool:
    """Whether this process was started from a self-contained executable."""
    return bool(getattr(sys, "frozen", False))


def describe() -> str:
    """Program name and build information, in a line."""
    build = "self-contained" if is_frozen() else "from source"
    return f"{NAME} {VERSION} ({build}, Python {platform.python_version()}, {platform.machine()})"


def copy_to(destination: str, environ: Mapping[str, str]) -> None:
    """Copies the artefact that this process was started from, with mode 0755.

    Of a self-extracting build that is the outer file, not what it has unpacked. A runner started from source
    writes an executable archive of its package, which the same interpreter runs.

    Raises:
        OSError: the artefact cannot be read or the destination cannot be written.
    """
    target = Path(destination)
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as output:
            if is_frozen():
                _copy_file(environ.get("STATICX_PROG_PATH") or sys.executable, output)
            else:
                output.write(_archive())
            os.fchmod(output.fileno(), _MODE)
        # Renamed into place, so that nobody ever executes half a file.
        temporary.replace(target)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def _copy_file(source: str, output: io.BufferedWriter) -> None:
    """Copies in small pieces: the container that runs this has little memory."""
    with open(source, "rb") as file:
        while piece := file.read(1 << 18):
            output.write(piece)


def _archive() -> bytes:
    """A zip archive of this package behind two lines of shell that start it with this interpreter."""
    import zipfile  # only here, so that a run does not start later for it

    package = Path(__file__).parent
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("captf_controllers/__init__.py", "")
        for source in sorted(package.glob("*.py")):
            archive.writestr(f"captf_controllers/runner/{source.name}", source.read_bytes())
        archive.writestr("__main__.py", (package / "__main__.py").read_bytes())
    launcher = f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$0" "$@"\n'
    return launcher.encode() + buffer.getvalue()
