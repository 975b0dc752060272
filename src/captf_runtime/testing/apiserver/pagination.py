"""Pages of a list: continue tokens, and the one snapshot that all pages of a list show."""

from __future__ import annotations

import base64
import binascii
from bisect import bisect_left

import msgspec

from captf_runtime.objects import Object
from captf_runtime.testing.apiserver import status
from captf_runtime.testing.apiserver.storage import Compacted, Record, Store
from captf_runtime.testing.apiserver.watch import Selection

_TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list "
    "without the continue parameter, or use the continue token in this response to retrieve the remainder of the "
    "results. Continuing with the provided token results in an inconsistent list - objects that were created, "
    "modified, or deleted between the time the first chunk was returned and now may show up in the list."
)


def encode_token(revision: int, start: str) -> str:
    """The continue token for the rest of a list after the key before `start`; revision -1 reads the present."""
    content = msgspec.json.encode({"v": "meta.k8s.io/v1", "rv": revision, "start": start})
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def decode_token(token: str) -> tuple[int, str]:
    """Revision and first key of a token; raises a 400 `ApiStatus`."""
    try:
        content = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
        found = msgspec.json.decode(content)
        revision, start = found["rv"], found["start"]
        valid = found.get("v") == "meta.k8s.io/v1" and isinstance(revision, int) and isinstance(start, str)
    except (binascii.Error, ValueError, msgspec.DecodeError, KeyError, TypeError, AttributeError) as problem:
        detail = "continue key is not valid: invalid character 'i' looking for beginning of value"
        message = f"invalid continue token: {detail}"
        raise status.bad_request(message) from problem
    if not valid or not start or revision == 0:
        raise status.bad_request(
            "invalid continue token: continue key is not valid: incorrect encoded start resourceVersion"
        )
    return revision, start


def page(
    store: Store,
    table: str,
    selection: Selection,
    *,
    limit: int,
    token: str,
    resource_version: str,
    version_match: str,
) -> tuple[list[Record], Object]:
    """The records of one page and the metadata of its list.

    Raises `ApiStatus`: 400 for a bad token, 410 for one that history no longer reaches, 504 for a version in
    the future.
    """
    revision: int | None = None
    start = ""
    if token:
        revision, start = decode_token(token)
        if resource_version not in ("", "0"):
            raise status.bad_request("specifying resource version is not allowed when using continue")
    elif resource_version:
        if not resource_version.isdigit():
            detail = f'strconv.ParseUint: parsing "{resource_version}": invalid syntax'
            raise status.plain_internal(f'resourceVersion: Invalid value: "{resource_version}": {detail}')
        asked = int(resource_version)
        current = store.revision
        if asked > current:
            raise status.version_too_large(asked, current)
        if version_match == "Exact":
            revision = asked
    with store.lock:
        shown = store.revision if revision is None or revision < 0 else revision
        try:
            records = store.list(
                table, selection.namespace, revision=None if shown == store.revision else shown
            )
        except Compacted as gone:
            if token:
                raise status.expired(_TOO_OLD, continue_token=encode_token(-1, start)) from gone
            raise status.expired("The resourceVersion for the provided list is too old.") from gone
    # Tokens name keys as they are below the listed namespace.
    prefix = f"{selection.namespace}/" if selection.namespace else ""
    if start:
        records = records[bisect_left(records, prefix + start, key=lambda record: record.key) :]
    total = len(records)
    chosen: list[Record] = []
    seen = 0
    plain = selection.everything
    for record in records:
        seen += 1
        if plain or selection.holds(record):
            chosen.append(record)
            if limit and len(chosen) == limit:
                break
    metadata: Object = {"resourceVersion": str(shown)}
    if limit and seen < total:
        last = chosen[-1].key.removeprefix(prefix)
        metadata["continue"] = encode_token(shown, f"{last}\0")
        if plain:
            metadata["remainingItemCount"] = total - seen
    return chosen, metadata
