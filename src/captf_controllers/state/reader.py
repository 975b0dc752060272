"""Reading an object's state from the API server, with a cache that never changes a result.

Every machine of a cluster reads the cluster's state in every pass. So a read first lists the metadata of
the chunks, which also bounds what is fetched, and takes the parse of earlier if no chunk has changed since.

Invariants:
- every read asks the API server, and a kept parse is used only when every chunk still has the uid and
  resourceVersion that it was parsed from;
- an error, or no state, drops what was kept;
- at most `decodes` payloads are decompressed and parsed at the same time.
"""

from __future__ import annotations

from contextlib import nullcontext

from captf_controllers.api import names
from captf_runtime.client.verbs import Verbs
from captf_runtime.objects import SECRET, Object

from .cache import StateCache, fingerprint
from .reading import MAX_SECRETS, NO_STATE, StateProblem, StateReading, classify, too_many


def read_state(client: Verbs, namespace: str, suffix: str, cache: StateCache | None = None) -> StateReading:
    """Read an object's state.

    Args:
        client: a live client; never a cached reader.
        namespace: the object's namespace.
        suffix: the object's state suffix.
        cache: parses of earlier reads, None to parse afresh.

    Raises:
        ApiError: the API server did not answer. This says nothing about the state.
    """
    try:
        reading = _read(client, namespace, suffix, cache)
    except BaseException:
        if cache is not None:
            cache.drop(namespace, suffix)
        raise
    if cache is not None and not reading.readable:
        cache.drop(namespace, suffix)
    return reading


def _read(client: Verbs, namespace: str, suffix: str, cache: StateCache | None) -> StateReading:
    selector = names.state_selector(suffix)
    listed = client.list(SECRET, namespace, label_selector=selector, metadata_only=True).items
    if not listed:
        return NO_STATE
    if len(listed) > MAX_SECRETS:
        return _over_the_cap(len(listed))
    before = fingerprint(listed)
    if cache is not None:
        kept = cache.find(namespace, suffix, before)
        if kept is not None:
            return StateReading(state=kept)
    with cache.decoding if cache is not None else nullcontext():
        secrets = fetch_state(client, namespace, suffix)
        reading = classify(suffix, secrets)
    if cache is not None and reading.state is not None and fingerprint(secrets) == before:
        cache.keep(namespace, suffix, before, reading.state)
    return reading


def fetch_state(client: Verbs, namespace: str, suffix: str) -> list[Object]:
    """Return the state Secrets with their data, and no more of them than decide that there are too many.

    Raises:
        ApiError: the API server did not answer.
    """
    found: list[Object] = []
    for page in client.pages(
        SECRET, namespace, label_selector=names.state_selector(suffix), limit=MAX_SECRETS + 1
    ):
        found = list(page.items) if page.restarted else [*found, *page.items]
        if len(found) > MAX_SECRETS:
            break
    return found


def _over_the_cap(count: int) -> StateReading:
    error = too_many(count)
    return StateReading(problem=StateProblem.CORRUPT, message=error.message)
