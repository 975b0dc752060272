"""Following an object until something is reached, and telling each change on the way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import click

from captf_controllers.api.kinds import workload_kind
from captf_controllers.cli.connection import Connection
from captf_controllers.cli.diagnosis import Diagnosis, as_text
from captf_controllers.cli.examination import Examination, examine, manager_leases
from captf_controllers.cli.target import Target
from captf_controllers.cli.why import diagnose
from captf_runtime.client.errors import NotFound
from captf_runtime.objects import format_time, uid_of

#: Seconds between two looks.
INTERVAL = 2.0

Pause = Callable[[float], object]


@dataclass(frozen=True, slots=True)
class Follower:
    """Looks at one object again and again.

    Guarantees: an object made again under the same name counts as gone. ``pause`` waits between two looks,
    ``timeout`` is in seconds.
    """

    connection: Connection
    target: Target
    uid: str
    timeout: float
    pause: Pause

    def until_gone(self) -> None:
        """Follow until the object is gone.

        Raises:
            click.ClickException: the time is over; the last look was printed.
        """
        self.until(lambda _: None)

    def until(self, reached: Callable[[Examination], str | None]) -> str | None:
        """Follow until ``reached`` answers; its answer, or None when the object is gone.

        Raises:
            click.ClickException: the time is over; the last look was printed.
        """
        clock = self.connection.clock
        deadline = clock.monotonic() + self.timeout
        told = ""
        while True:
            found = self._look()
            if found is None:
                return None
            answer = reached(found)
            if answer is not None:
                return answer
            diagnosis = diagnose(found, lambda: manager_leases(self.connection.client))
            if diagnosis.summary != told:
                told = diagnosis.summary
                click.echo(f"{format_time(found.now)} {told}")
            if clock.monotonic() >= deadline:
                raise self._too_late(diagnosis)
            self.pause(INTERVAL)

    def _look(self) -> Examination | None:
        try:
            obj = self.connection.client.get(
                workload_kind(self.target.kind), self.target.name, self.connection.namespace
            )
        except NotFound:
            return None
        return examine(self.connection, obj) if uid_of(obj) == self.uid else None

    def _too_late(self, diagnosis: Diagnosis) -> click.ClickException:
        click.echo(as_text(diagnosis), nl=False)
        return click.ClickException(
            f"{self.target.resource} {self.target.name} still waits after {self.timeout:g} seconds (--timeout)"
        )
