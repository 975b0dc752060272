from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from captf_runtime.client import ApiError, Gone, WatchDecodeError, WatchStream
from captf_runtime.client.watch import LineBuffer
from captf_runtime.objects import CONFIG_MAP


class Pieces:
    """A stream that hands out prepared pieces."""

    status = 200

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = list(pieces)
        self.closed = False

    def read_some(self) -> bytes:
        return self._pieces.pop(0) if self._pieces else b""

    def close(self) -> None:
        self.closed = True


def watch(*pieces: bytes, metadata_only: bool = False) -> WatchStream:
    return WatchStream(Pieces(pieces), CONFIG_MAP, "/api/v1/configmaps", metadata_only=metadata_only)  # type: ignore[arg-type]


def line(type_: str, name: str, **fields: object) -> bytes:
    return json.dumps({"type": type_, "object": {"metadata": {"name": name}, **fields}}).encode() + b"\n"


@pytest.mark.requirement("RF9")
@given(st.data())
def test_events_come_out_whatever_the_borders_of_the_pieces(data: st.DataObject) -> None:
    names = data.draw(st.lists(st.text("aä€😀 \u2028", min_size=1, max_size=4), max_size=5))
    text = b"".join(
        json.dumps({"type": "ADDED", "object": {"metadata": {"name": name}}}, ensure_ascii=False).encode()
        + data.draw(st.sampled_from([b"\n", b"\n\n", b"\r\n"]))
        for name in names
    )
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True) if a < b]
    assert [event.decode()["metadata"]["name"] for event in watch(*pieces)] == names


@pytest.mark.requirement("RF9")
def test_a_line_has_no_limit_and_costs_no_more_than_its_length() -> None:
    buffer = LineBuffer()
    piece = b"x" * 65536
    tracemalloc.start()
    for _ in range(512):
        assert buffer.feed(piece) == []
    lines = buffer.feed(b"\nrest")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [len(line) for line in lines] == [512 * 65536]
    assert peak < 2.5 * 512 * 65536
    assert buffer.rest() == b"rest"


@pytest.mark.requirement("RF9")
@pytest.mark.parametrize(
    "bad",
    [
        b"not json\n",
        b'{"type":"ADDED"}\n',
        b'{"object":{}}\n',
        b'{"type":"ADDED","object":null}\n',
        b'{"type":"ADDED","object":[]}\n',
        b'{"type":7,"object":{}}\n',
        b'{"type":"ADDED","object":{"metada',
    ],
)
def test_a_line_that_is_no_event_closes_the_stream(bad: bytes) -> None:
    stream = watch(line("ADDED", "a") + bad, line("ADDED", "b"))
    assert next(stream).decode()["metadata"]["name"] == "a"
    with pytest.raises(WatchDecodeError):
        next(stream)
    assert list(stream) == []


def test_the_last_line_may_lack_its_newline() -> None:
    assert [event.type for event in watch(line("ADDED", "a") + line("DELETED", "b").strip())] == [
        "ADDED",
        "DELETED",
    ]


def test_events_bear_the_real_kind() -> None:
    event = next(
        watch(
            line("ADDED", "a", kind="PartialObjectMetadata", apiVersion="meta.k8s.io/v1"), metadata_only=True
        )
    )
    assert (event.decode()["kind"], event.decode()["apiVersion"]) == ("ConfigMap", "v1")
    assert next(watch(line("ADDED", "a"))).decode()["kind"] == "ConfigMap"


@pytest.mark.requirement("RF5")
def test_an_error_event_is_raised_as_its_class() -> None:
    def error(code: int, reason: str) -> bytes:
        body = {"type": "ERROR", "object": {"kind": "Status", "code": code, "reason": reason}}
        return json.dumps(body).encode() + b"\n"

    with pytest.raises(Gone):
        list(watch(line("ADDED", "a"), error(410, "Expired")))
    with pytest.raises(ApiError) as raised:
        list(watch(error(500, "InternalError")))
    assert not isinstance(raised.value, Gone)
    assert raised.value.code == 500


def test_a_closed_stream_ends_even_with_lines_left() -> None:
    stream = watch(line("ADDED", "a") + line("ADDED", "b"))
    next(stream)
    stream.close()
    assert list(stream) == []
