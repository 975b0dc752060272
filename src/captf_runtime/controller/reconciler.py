"""What a reconciler takes and gives."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from .context import Context

__all__ = ["ReconcileError", "Reconciler", "Request", "Result", "TerminalError"]


class Request(NamedTuple):
    """The object to reconcile, by name alone: what happened to it is for the reconciler to find out."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


@dataclass(frozen=True, slots=True)
class Result:
    """How a reconcile that did not fail wants to go on. Nothing set: wait for the next event.

    Args:
        requeue_after: seconds after which the object is to be reconciled again; 0 for none.
        requeue: reconcile again, at a pace that slows down with each time in a row.
        priority: priority of that next run; None: that of this one.

    Raises:
        ValueError: a delay that is negative or not a number.
        TypeError: a delay of another type.
    """

    requeue_after: float = 0.0
    requeue: bool = False
    priority: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.requeue_after, bool) or not isinstance(self.requeue_after, (int, float)):
            raise TypeError(
                f"requeue_after: must be a number of seconds, got {self.requeue_after!r}; to reconcile again at a "
                "pace that slows down say requeue=True"
            )
        if math.isnan(self.requeue_after) or self.requeue_after < 0:
            raise ValueError(f"requeue_after: must be 0 or more seconds, got {self.requeue_after}")


class Reconciler(Protocol):
    """Brings one object closer to what its spec asks for."""

    def reconcile(self, ctx: Context, request: Request) -> Result | None:
        """Look at the object as it is now and do what is missing.

        May be called again at any time, for an object that is gone too, and never twice at once for one
        request. An exception means: try again later, more slowly each time.
        """
        ...


class ReconcileError(Exception):
    """A failure that the reconciler knows: retried with growing delays, logged without a stack."""


class TerminalError(Exception):
    """A failure that no retry can mend: reported, and not tried again until something changes."""


def check_reconciler(reconciler: object) -> None:
    """Refuse what cannot be called as a reconciler.

    Raises:
        TypeError: with what to give instead.
    """
    if isinstance(reconciler, type):
        raise TypeError(f"reconciler: give an object, {reconciler.__name__}(...), not its class")
    function = getattr(reconciler, "reconcile", reconciler)
    if not callable(function):
        raise TypeError(
            "reconciler: must be an object with a method reconcile(ctx, request), or such a function, "
            f"got {reconciler!r}"
        )
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise TypeError(
            "reconciler: runs in a thread and returns a Result or None: neither an async function nor a generator"
        )
    try:
        inspect.signature(function).bind(None, None)
    except TypeError as error:
        raise TypeError(f"reconciler: must take a context and a request: {error}") from None
    except ValueError:
        return  # one that is not written in Python tells nothing of its parameters


def check_request(request: object) -> Request:
    """Return what is a Request; refuse anything else, with which a worker could do nothing.

    Raises:
        TypeError: with what to give instead.
    """
    if not isinstance(request, Request):
        raise TypeError(f"request: must be a Request(namespace, name), got {request!r}")
    return request


def check_result(end: object) -> None:
    """Refuse what a reconciler must not return.

    Raises:
        TypeError: it is neither a Result nor None.
    """
    if end is not None and not isinstance(end, Result):
        raise TypeError(
            f"reconcile must return a Result or None, got {type(end).__name__}: return "
            "Result(requeue_after=seconds) to come back, None when all is done"
        )


class FunctionReconciler:
    """A reconciler made of a function."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[[Context, Request], Result | None]) -> None:
        self._function = function

    def reconcile(self, ctx: Context, request: Request) -> Result | None:
        """Call the function."""
        return self._function(ctx, request)
