"""What every program of the benchmark prints, and how it knows its own memory.

Standard library only: the peers' programs import it in environments of their own.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Measurement:
    """One program's run over N objects.

    Args:
        objects: how many are in its cache at the end.
        sync_seconds: from the start to a complete cache.
        reconcile_seconds: from there until each object has been reconciled once.
        total_seconds: the sum of both.
        rss_mib_start, rss_mib_end: resident memory before the first request and at the end.
        requests: HTTP requests sent; None where the program cannot count them.
    """

    objects: int
    sync_seconds: float
    reconcile_seconds: float
    total_seconds: float
    rss_mib_start: float
    rss_mib_end: float
    requests: int | None

    @property
    def rss_mib_growth(self) -> float:
        """Memory that came with the objects."""
        return self.rss_mib_end - self.rss_mib_start

    def line(self) -> str:
        """The one line of JSON that a program prints."""
        values = {
            name: round(value, 4) if isinstance(value, float) else value
            for name, value in asdict(self).items()
        }
        return json.dumps(values)

    @classmethod
    def of_line(cls, line: str) -> Measurement:
        """Read what `line` wrote.

        Raises:
            ValueError: it is something else.
        """
        try:
            return cls(**json.loads(line))
        except TypeError as error:
            raise ValueError(f"not a measurement: {line!r}") from error


def resident_mib() -> float:
    """Resident memory of this process in MiB (Linux), 0 where it cannot be told."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
