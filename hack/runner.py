"""Builds the runner as one executable that starts in an image with nothing else in it.

PyInstaller packs the runner with an interpreter, StaticX makes the result independent of the image's libc.
Two things decide which Python may be used for that: StaticX refuses libraries that carry a RUNPATH, which
rules out most interpreters built by hand; that of Debian and its relatives works. And `patchelf` must be
there; as root on such a system the missing packages are installed.

    python3 -m hack.runner [--python /usr/bin/python3] [--output dist/captf-runner]
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
REQUIREMENTS = Path(__file__).with_name("runner-requirements.txt")
ENTRY = REPOSITORY / "src" / "captf_controllers" / "runner" / "__main__.py"

# Program -> the Debian package that holds it.
TOOLS = {"patchelf": "patchelf", "objcopy": "binutils", "readelf": "binutils", "ldd": "libc-bin"}

# Parts of the standard library that hooks or guarded imports would pull in and the runner never uses.
UNUSED = (
    "asyncio", "concurrent", "curses", "distutils", "doctest", "ftplib", "lib2to3", "multiprocessing", "pdb",
    "pkg_resources", "pydoc", "setuptools", "sqlite3", "test", "tkinter", "unittest", "urllib.request",
    "xmlrpc",
)  # fmt: skip


class BuildError(Exception):
    """The runner cannot be built here. The text says what is missing."""


def main(arguments: Sequence[str]) -> int:
    """Builds the runner; exit status 0, or 1 with a message that says what is missing."""
    parser = argparse.ArgumentParser(prog="hack.runner", description="Build the self-contained runner.")
    parser.add_argument(
        "--python", default="/usr/bin/python3", help="interpreter to pack (default %(default)s)"
    )
    parser.add_argument("--output", type=Path, default=REPOSITORY / "dist" / "captf-runner")
    parser.add_argument(
        "--work", type=Path, default=REPOSITORY / "build" / "runner", help="scratch directory"
    )
    options = parser.parse_args(arguments)
    try:
        ensure_tools(options.python)
        build(options.python, options.work.resolve(), options.output.resolve())
    except BuildError as error:
        print(f"hack.runner: {error}", file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as error:
        print(f"hack.runner: {error.cmd[0]} failed with exit code {error.returncode}", file=sys.stderr)
        return 1
    print(f"{options.output} ({options.output.stat().st_size / 1e6:.1f} MB)")
    return 0


def ensure_tools(python: str) -> None:
    """Installs missing programs where that is possible, else says which packages to install.

    Raises:
        BuildError: a program is missing and cannot be installed, or the interpreter is too old.
    """
    packages = {package for tool, package in TOOLS.items() if shutil.which(tool) is None}
    if shutil.which(python) is None:
        packages.add("python3")
    if shutil.which(python) is None or not _succeeds([python, "-c", "import ensurepip, venv"]):
        packages.add("python3-venv")
    if packages:
        if os.geteuid() != 0 or shutil.which("apt-get") is None:
            raise BuildError(f"install first: {' '.join(sorted(packages))}")
        subprocess.run(["apt-get", "update", "-qq"], check=True)
        install = ["apt-get", "install", "--yes", "-qq", "--no-install-recommends", *sorted(packages)]
        subprocess.run(install, check=True, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"})
    if not _succeeds([python, "-c", "import sys; sys.exit(sys.version_info < (3, 11))"]):
        raise BuildError(f"{python} is older than Python 3.11; name another one with --python")


def build(python: str, work: Path, output: Path) -> None:
    """Packs the runner and makes it static; `output` is replaced at the end."""
    environment = work / "venv"
    stamp = environment / ".installed"
    if not stamp.exists() or stamp.stat().st_mtime < REQUIREMENTS.stat().st_mtime:
        shutil.rmtree(environment, ignore_errors=True)
        subprocess.run([python, "-m", "venv", str(environment)], check=True)
        pip = [str(environment / "bin" / "python"), "-m", "pip", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "install", "--require-hashes", "-r", str(REQUIREMENTS)], check=True)
        stamp.touch()
    packed = work / "packed"
    freeze = [
        str(environment / "bin" / "pyinstaller"),
        *("--onefile", "--noconfirm", "--clean", "--log-level=WARN", "--name=captf-runner"),
        f"--paths={REPOSITORY / 'src'}",
        f"--distpath={packed}",
        f"--workpath={work / 'objects'}",
        f"--specpath={work}",
        *(f"--exclude-module={module}" for module in UNUSED),
        str(ENTRY),
    ]
    # Hash randomisation off, so that the same sources give the same order of files.
    reproducible = {**os.environ, "PYTHONHASHSEED": "0", "SOURCE_DATE_EPOCH": "0"}
    subprocess.run(freeze, check=True, env=reproducible)
    static = work / "captf-runner"
    link = [str(environment / "bin" / "staticx"), "--strip", str(packed / "captf-runner"), str(static)]
    subprocess.run(link, check=True, env=reproducible)
    output.parent.mkdir(parents=True, exist_ok=True)
    static.chmod(0o755)
    shutil.move(static, output)


def _succeeds(command: Sequence[str]) -> bool:
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
