"""Telling what happens, line by line, with the time since the start."""

from __future__ import annotations

import threading
import time

from rich.console import Console
from rich.markup import escape


class Narrator:
    """Prints the tour. Thread-safe; plain text where no terminal is."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False, soft_wrap=True)
        self._started = time.monotonic()
        self._lock = threading.Lock()

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._started

    def chapter(self, title: str) -> None:
        """A new part of the story."""
        with self._lock:
            self._console.print(f"\n[bold]{escape(title)}[/bold]")

    def say(self, text: str, *, style: str = "") -> None:
        """One line of it."""
        stamp = f"[dim]{self.elapsed:6.1f}s[/dim]  "
        body = escape(text)
        with self._lock:
            self._console.print(stamp + (f"[{style}]{body}[/{style}]" if style else body))

    def plain(self, text: str) -> None:
        """Something quoted: conditions, logs."""
        with self._lock:
            self._console.print(escape(text), style="dim")
