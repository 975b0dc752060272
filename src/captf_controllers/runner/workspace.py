"""The working directory of a run, and the environment of the runtime's commands."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from captf_controllers.runner.flags import Settings

_KEPT = {"TF_IN_AUTOMATION", "TF_INPUT", "KUBE_NAMESPACE"}
_BOOTSTRAP_PREFIXES = ("_PYI_", "_MEIPASS", "STATICX_")


class PrepareError(Exception):
    """The run cannot be prepared. The text names the path or the flag, never a content."""


@dataclass(frozen=True, slots=True)
class Workspace:
    """A prepared working directory.

    Attributes:
        directory: the writable directory; absolute.
        root: the root module within it, the child's working directory.
        environment: the environment of every runtime command.
        dropped: names of the variables that the runtime must not see.
    """

    directory: Path
    root: Path
    environment: dict[str, str]
    dropped: list[str]


def original_environment(environ: Mapping[str, str], *, frozen: bool) -> dict[str, str]:
    """The environment as it was before a self-extracting build changed it.

    Args:
        environ: this process's environment.
        frozen: whether this process was started from such a build.
    """
    if not frozen:
        return dict(environ)
    restored = {name: value for name, value in environ.items() if not name.startswith(_BOOTSTRAP_PREFIXES)}
    original = restored.pop("LD_LIBRARY_PATH_ORIG", None)
    restored.pop("LD_LIBRARY_PATH", None)
    if original is not None:
        restored["LD_LIBRARY_PATH"] = original
    return restored


def prepare(settings: Settings, environ: Mapping[str, str]) -> Workspace:
    """Creates the root, copies the rendered files into it and builds the environment.

    Only top-level regular files of the configuration are copied, and none whose name starts with a dot: a
    Secret volume also holds the links by which it is updated, and a restore's chunks.

    Raises:
        PrepareError: something cannot be created, read or written.
    """
    directory = Path(os.path.abspath(settings.workdir))
    root = directory / "root"
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        for source in sorted(Path(settings.config).iterdir()):
            if not source.name.startswith(".") and source.is_file():
                write_private(root / source.name, source.read_bytes())
        environment, dropped = runtime_environment(environ, directory)
        if "TMPDIR" not in environment:
            temporary = directory / "tmp"
            temporary.mkdir(mode=0o700, exist_ok=True)
            environment["TMPDIR"] = str(temporary)
        if os.path.isdir(settings.providers):
            configuration = directory / "cli.tfrc"
            write_private(configuration, cli_configuration(settings.providers).encode())
            environment["TF_CLI_CONFIG_FILE"] = str(configuration)
    except OSError as error:
        raise PrepareError(f"the working directory cannot be prepared: {_reason(error)}") from None
    return Workspace(directory, root, environment, dropped)


def runtime_environment(environ: Mapping[str, str], directory: Path) -> tuple[dict[str, str], list[str]]:
    """The environment of the runtime, and the names that were dropped from it.

    `TF_*` and `KUBE_*` steer the runtimes and their backend: only those that CAPTF sets itself pass.
    """
    dropped = sorted(name for name in environ if name.startswith(("TF_", "KUBE_")) and name not in _KEPT)
    environment = {name: value for name, value in environ.items() if name not in dropped}
    environment["HOME"] = str(directory)
    environment["TF_DATA_DIR"] = str(directory / ".terraform")
    if not environment.get("TMPDIR"):
        environment.pop("TMPDIR", None)
    return environment, dropped


def cli_configuration(providers: str) -> str:
    """The CLI configuration that installs providers from the image's mirror only.

    Three segments cover the providers of every registry, so one that the mirror lacks fails `init` instead
    of being downloaded.
    """
    path = _quoted(os.path.abspath(providers))
    return (
        "provider_installation {\n"
        "  filesystem_mirror {\n"
        f"    path    = {path}\n"
        '    include = ["*/*/*"]\n'
        "  }\n"
        "  direct {\n"
        '    exclude = ["*/*/*"]\n'
        "  }\n"
        "}\n"
    )


def write_private(path: Path, data: bytes) -> None:
    """Writes a file that only its owner can read (0600), replacing one that is there."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(file.fileno(), stat.S_IRUSR | stat.S_IWUSR)
        file.write(data)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("${", "$${").replace("%{", "%%{")
    return f'"{escaped}"'


def _reason(error: OSError) -> str:
    return f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror)
