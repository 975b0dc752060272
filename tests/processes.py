"""Whether processes still run."""

from __future__ import annotations

import os
from pathlib import Path


def is_alive(pid: int) -> bool:
    """Say whether the process runs; one that has ended and only waits to be collected does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return not Path("/proc/self").exists()
