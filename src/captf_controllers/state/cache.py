"""Parsed states that are kept between reads, each with the Secrets that it was parsed from."""

from __future__ import annotations

import copy
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from captf_runtime.objects import Object, name_of, resource_version_of, uid_of

from .reading import State

Fingerprint: TypeAlias = tuple[str, ...]


def fingerprint(secrets: Sequence[Object]) -> Fingerprint:
    """Return what identifies the content of a set of Secrets."""
    return tuple(
        sorted(f"{name_of(secret)}/{uid_of(secret)}/{resource_version_of(secret)}" for secret in secrets)
    )


@dataclass(frozen=True, slots=True)
class _Kept:
    fingerprint: Fingerprint
    state: State
    size: int


class StateCache:
    """Parsed states of one manager; safe for threads.

    Args:
        max_states: how many states are kept.
        max_bytes: how many bytes of outputs (name, value and type) are kept over all states. A state
            larger than that is not kept at all.
        decodes: how many payloads are decoded at the same time.
    """

    def __init__(self, *, max_states: int = 512, max_bytes: int = 64 * 1024 * 1024, decodes: int = 4) -> None:
        self._max_states = max_states
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[str, str], _Kept] = OrderedDict()
        self._bytes = 0
        self.decoding = threading.BoundedSemaphore(decodes)

    def __len__(self) -> int:
        with self._lock:
            return len(self._kept)

    @property
    def bytes(self) -> int:
        """Bytes of outputs that are kept."""
        with self._lock:
            return self._bytes

    def find(self, namespace: str, suffix: str, now: Fingerprint) -> State | None:
        """Return a copy of the parse of exactly these Secrets, None when there is none."""
        with self._lock:
            kept = self._kept.get((namespace, suffix))
        if kept is None or kept.fingerprint != now:
            return None
        return _copy(kept.state)

    def keep(self, namespace: str, suffix: str, now: Fingerprint, state: State) -> None:
        """Keep a parse; the oldest ones make room."""
        size = sum(
            len(name.encode(errors="replace")) + len(output.value) + len(output.type)
            for name, output in state.outputs.items()
        )
        kept = _Kept(now, _copy(state), size)
        with self._lock:
            self._drop((namespace, suffix))
            if size > self._max_bytes:
                return
            self._kept[(namespace, suffix)] = kept
            self._bytes += size
            while len(self._kept) > self._max_states or self._bytes > self._max_bytes:
                self._drop(next(iter(self._kept)))

    def drop(self, namespace: str, suffix: str) -> None:
        """Forget the parse of a state."""
        with self._lock:
            self._drop((namespace, suffix))

    def _drop(self, key: tuple[str, str]) -> None:
        kept = self._kept.pop(key, None)
        if kept is not None:
            self._bytes -= kept.size


def _copy(state: State) -> State:
    # Everything but the metadata is immutable.
    return replace(state, secrets=copy.deepcopy(state.secrets))
