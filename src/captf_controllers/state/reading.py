"""What a set of state Secrets says: a state, no state, or one that cannot be read. Pure.

Invariants:
- memory and time are bounded whatever the Secrets hold: at most `MAX_SECRETS` chunks are looked at, at most
  `MAX_STATE_BYTES` come out of decompression, and nothing of a resource's instances is kept;
- no message quotes content: it names Secrets, chunks, limits and versions;
- the first failing step decides, so that one damage is always reported in the same way.
"""

from __future__ import annotations

import binascii
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, Any, Final

import msgspec

from captf_controllers.api import annotations as keys
from captf_controllers.api import names, reasons
from captf_runtime.objects import Object, annotations_of, name_of

DATA_KEY: Final = "tfstate"
MAX_SECRETS: Final = 32
MAX_STATE_BYTES: Final = 16 * 1024 * 1024
CHUNK_BYTES: Final = 1_048_576
"""Size at which Terraform cuts the compressed state; a payload of exactly this size has a successor."""

STATE_VERSION: Final = b"4"

_GZIP = zlib.MAX_WBITS | 16


class StateProblem(StrEnum):
    """Why a state that exists cannot be read."""

    INCONSISTENT = "inconsistent"
    CORRUPT = "corrupt"
    ENCRYPTED = "encrypted"
    UNSUPPORTED_VERSION = "unsupported-version"

    @property
    def reason(self) -> str:
        """The reason of `StateReadable`."""
        return _REASONS[self]

    @property
    def metric(self) -> str:
        """The `reason` label of `captf_state_read_errors_total`; an unsupported version counts as corrupt."""
        return "corrupt" if self is StateProblem.UNSUPPORTED_VERSION else self.value


_REASONS: Final = MappingProxyType(
    {
        StateProblem.INCONSISTENT: reasons.STATE_INCONSISTENT,
        StateProblem.CORRUPT: reasons.STATE_CORRUPT,
        StateProblem.ENCRYPTED: reasons.STATE_ENCRYPTED,
        StateProblem.UNSUPPORTED_VERSION: reasons.STATE_CORRUPT,
    }
)


class StateUnreadable(Exception):
    """A state exists and cannot be read; the message says why without quoting any of it."""

    def __init__(self, problem: StateProblem, message: str) -> None:
        super().__init__(message)
        self.problem = problem
        self.message = message


@dataclass(frozen=True, slots=True)
class Output:
    """A root output: `value` and `type` are the JSON as it was written."""

    value: bytes = field(repr=False)
    type: bytes = field(repr=False)
    sensitive: bool


@dataclass(frozen=True, slots=True)
class State:
    """A state that was read.

    Args:
        serial: the state's serial, opaque: a restore and a rewind repeat serials.
        lineage: the state's lineage.
        terraform_version: version of the runtime that wrote it.
        outputs: root outputs by name; values may be secret.
        managed_resources: entries of mode `managed`; one with count or for_each counts once.
        secrets: metadata of every chunk, base first.
        bytes: compressed size over all chunks, a stale trailing one included.
        inputs_hash: hash of the inputs that the state was adopted with, "" when there is none.
    """

    serial: int
    lineage: str
    terraform_version: str
    outputs: Mapping[str, Output] = field(repr=False)
    managed_resources: int
    secrets: tuple[Object, ...] = field(repr=False)
    bytes: int
    inputs_hash: str

    @property
    def untouched(self) -> bool:
        """It is as a backend leaves it that was initialised: no apply, finished or not, has written to it."""
        return not self.outputs and self.tells_nothing

    @property
    def tells_nothing(self) -> bool:
        """It lists no resources, and no apply of it was ever recorded as one that succeeded.

        A refresh leaves such a state, with outputs, where it found none.
        """
        return not (self.managed_resources or self.inputs_hash)


@dataclass(frozen=True, slots=True)
class StateReading:
    """What reading an object's state came to: a state, no state, or a problem."""

    state: State | None = None
    problem: StateProblem | None = None
    message: str = ""

    @property
    def readable(self) -> bool:
        """Whether there is a state that was read."""
        return self.state is not None

    @property
    def no_state(self) -> bool:
        """Whether there is no state Secret at all."""
        return self.state is None and self.problem is None

    @property
    def reason(self) -> str:
        """The reason of `StateReadable` for an unreadable state, "" for every other."""
        return self.problem.reason if self.problem else ""


NO_STATE: Final = StateReading()


@dataclass(frozen=True, slots=True)
class Payload:
    """The chunks of a set in order: their Secrets and compressed bytes."""

    secrets: tuple[Object, ...] = field(repr=False)
    chunks: tuple[bytes, ...] = field(repr=False)

    @property
    def size(self) -> int:
        """Compressed size over all chunks."""
        return sum(len(chunk) for chunk in self.chunks)


def classify(suffix: str, secrets: Sequence[Object]) -> StateReading:
    """Read the state from its Secrets, in whatever order they come.

    Args:
        suffix: the object's state suffix.
        secrets: every Secret that the state selector matches, with data.
    """
    if not secrets:
        return NO_STATE
    try:
        return StateReading(state=parse_payload(assemble(names.state_secret(suffix), secrets)))
    except StateUnreadable as error:
        return StateReading(problem=error.problem, message=error.message)


def too_many(count: int) -> StateUnreadable:
    """Return the error for a set of more Secrets than are looked at."""
    return StateUnreadable(
        StateProblem.CORRUPT,
        f"the state consists of {count} Secrets, more than the {MAX_SECRETS} that are read",
    )


def order_chunks(base: str, secrets: Sequence[Object]) -> tuple[Object, ...]:
    """Return the Secrets of a set in chunk order.

    Raises:
        StateUnreadable: there are too many, one does not belong, or one is missing or there twice.
    """
    if len(secrets) > MAX_SECRETS:
        raise too_many(len(secrets))
    indexed: list[tuple[int, Object]] = []
    for secret in secrets:
        index = chunk_index(base, name_of(secret))
        if index is None:
            raise StateUnreadable(
                StateProblem.INCONSISTENT,
                f"Secret {name_of(secret)} carries the labels of the state but is not one of its chunks "
                f"({base}, {base}-part-1, …)",
            )
        indexed.append((index, secret))
    indexed.sort(key=lambda pair: pair[0])
    for position, (index, secret) in enumerate(indexed):
        if index == position:
            continue
        if index < position:
            message = f"chunk {index} of the state exists twice (Secret {name_of(secret)})"
        else:
            message = f"chunk {position} of the state is missing: Secret {names.chunk_name(base, position)}"
        raise StateUnreadable(StateProblem.INCONSISTENT, message)
    return tuple(secret for _, secret in indexed)


def chunk_index(base: str, name: str) -> int | None:
    """Return the index that a chunk's name says, None when it is no name of a chunk of this set."""
    if name == base:
        return 0
    head, marker, number = name.partition("-part-")
    if head != base or not marker or not number.isascii() or not number.isdigit():
        return None
    if number.startswith("0") or len(number) > 9:
        return None
    return int(number)


def assemble(base: str, secrets: Sequence[Object]) -> Payload:
    """Return the payload of a set of Secrets.

    Raises:
        StateUnreadable: the Secrets do not form one set, or one has no payload.
    """
    ordered = order_chunks(base, secrets)
    return Payload(ordered, tuple(_payload_of(secret) for secret in ordered))


def _payload_of(secret: Object) -> bytes:
    data = secret.get("data")
    encoded = data.get(DATA_KEY) if isinstance(data, dict) else None
    if not isinstance(encoded, str):
        raise StateUnreadable(
            StateProblem.INCONSISTENT, f"Secret {name_of(secret)} has no data key {DATA_KEY}"
        )
    try:
        return binascii.a2b_base64(encoded, strict_mode=bool(encoded))
    except binascii.Error:
        raise StateUnreadable(
            StateProblem.CORRUPT, f"data key {DATA_KEY} of Secret {name_of(secret)} is not base64"
        ) from None


def decompress(payload: Payload) -> bytes:
    """Return the first gzip member; whatever follows it is the rest of an older, longer state.

    Raises:
        StateUnreadable: the stream is damaged, cut short or too large.
    """
    stream = zlib.decompressobj(_GZIP)
    pieces: list[bytes] = []
    left = MAX_STATE_BYTES + 1
    for secret, chunk in zip(payload.secrets, payload.chunks, strict=True):
        rest = chunk
        while rest and not stream.eof:
            try:
                piece = stream.decompress(rest, left)
            except zlib.error:
                raise StateUnreadable(
                    StateProblem.CORRUPT,
                    f"the state cannot be decompressed: damaged gzip data up to Secret {name_of(secret)}",
                ) from None
            pieces.append(piece)
            left -= len(piece)
            if left <= 0:
                raise StateUnreadable(
                    StateProblem.CORRUPT,
                    f"the decompressed state is larger than the {MAX_STATE_BYTES} bytes that are read",
                )
            rest = stream.unconsumed_tail
    if stream.eof:
        return b"".join(pieces)
    last = name_of(payload.secrets[-1])
    if len(payload.chunks) > 1 or len(payload.chunks[0]) == CHUNK_BYTES:
        raise StateUnreadable(
            StateProblem.INCONSISTENT,
            f"the state ends within its gzip stream after Secret {last}: the last chunk is missing",
        )
    if not payload.chunks[0]:
        raise StateUnreadable(StateProblem.CORRUPT, f"data key {DATA_KEY} of Secret {last} is empty")
    raise StateUnreadable(
        StateProblem.CORRUPT, f"the state cannot be decompressed: gzip data of Secret {last} is cut short"
    )


_INT64 = msgspec.Meta(ge=-(2**63), le=2**63 - 1)


class _Output(msgspec.Struct):
    value: msgspec.Raw = msgspec.Raw(b"null")
    type: msgspec.Raw = msgspec.Raw(b"null")
    sensitive: bool = False


class _Resource(msgspec.Struct):
    mode: str = ""


class _Document(msgspec.Struct):
    version: msgspec.Raw = msgspec.Raw(b"")
    encryption_version: msgspec.Raw = msgspec.Raw(b"")
    serial: Annotated[int, _INT64] = 0
    lineage: str = ""
    terraform_version: str = ""
    outputs: dict[str, _Output] | None = None
    resources: list[_Resource] | None = None


_decode_document = msgspec.json.Decoder(_Document).decode


def parse_payload(payload: Payload) -> State:
    """Return the state that a payload holds.

    Raises:
        StateUnreadable: the payload is damaged, encrypted, or of another version.
    """
    base = payload.secrets[0]
    try:
        document = _decode_document(decompress(payload))
    except (msgspec.DecodeError, UnicodeDecodeError):
        # The decoder's own message may quote a value.
        raise StateUnreadable(
            StateProblem.CORRUPT, f"the state in Secret {name_of(base)} is not a JSON document of a state"
        ) from None
    except RecursionError:
        raise StateUnreadable(
            StateProblem.CORRUPT, f"the state in Secret {name_of(base)} is nested too deeply"
        ) from None
    if bytes(document.encryption_version) not in (b"", b"null"):
        raise StateUnreadable(
            StateProblem.ENCRYPTED,
            f"the state in Secret {name_of(base)} is encrypted by OpenTofu, which cannot be read: "
            "disable state encryption in the module",
        )
    version = bytes(document.version)
    if version != STATE_VERSION:
        found = (
            f"version {version.decode()}" if version.isdigit() and len(version) < 10 else "no known version"
        )
        raise StateUnreadable(
            StateProblem.UNSUPPORTED_VERSION,
            f"the state in Secret {name_of(base)} has {found}; version 4 is read",
        )
    return State(
        serial=document.serial,
        lineage=document.lineage,
        terraform_version=document.terraform_version,
        outputs=MappingProxyType(
            {
                name: Output(bytes(output.value), bytes(output.type), output.sensitive)
                for name, output in (document.outputs or {}).items()
            }
        ),
        managed_resources=sum(1 for resource in document.resources or () if resource.mode == "managed"),
        secrets=tuple(metadata_of(secret) for secret in payload.secrets),
        bytes=payload.size,
        inputs_hash=annotations_of(base).get(keys.INPUTS_HASH, ""),
    )


_KEPT_METADATA: Final = (
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "deletionTimestamp",
    "labels",
    "annotations",
    "ownerReferences",
)


def metadata_of(secret: Mapping[str, Any]) -> Object:
    """Return a Secret without its data and without the metadata that nobody reads."""
    found = secret.get("metadata")
    source = found if isinstance(found, dict) else {}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {key: source[key] for key in _KEPT_METADATA if key in source},
    }
