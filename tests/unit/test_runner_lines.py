from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from captf_controllers.runner.lines import Capture, LineSplitter, Tail


def split(pieces: list[bytes], limit: int = 1 << 20) -> list[str | None]:
    seen: list[str | None] = []
    splitter = LineSplitter(seen.append, lambda: seen.append(None), limit)
    for piece in pieces:
        splitter.feed(piece)
    splitter.close()
    return seen


def test_lines_are_put_together_from_pieces() -> None:
    assert split([b"on", b"e\ntwo\r\nth", b"", b"ree"]) == ["one", "two", "three"]


def test_empty_lines_are_lines() -> None:
    assert split([b"\n\na\n"]) == ["", "", "a"]


def test_a_line_over_the_limit_is_noted_once_and_the_next_is_read() -> None:
    assert split([b"12345", b"67", b"8\nok\n"], limit=4) == [None, "ok"]
    assert split([b"123456"], limit=4) == [None]
    assert split([b"1234\n"], limit=4) == ["1234"]


def test_bytes_that_are_no_text_are_replaced() -> None:
    assert split([b"a\xffb\n"]) == ["a\ufffdb"]


@settings(deadline=None)
@given(st.lists(st.binary(max_size=6).map(lambda data: data.replace(b"x", b"\n")), max_size=20))
def test_how_the_stream_is_cut_does_not_matter(pieces: list[bytes]) -> None:
    assert split(pieces, limit=4) == split([b"".join(pieces)], limit=4)


def test_the_tail_keeps_whole_lines_only() -> None:
    tail = Tail(limit=10)
    tail.feed(b"secret-value\nlast ")
    tail.feed(b"one\n")
    assert tail.text() == "last one\n"


def test_a_short_stream_is_all_tail() -> None:
    tail = Tail(limit=10)
    tail.feed(b"short")
    assert tail.text() == "short"


def test_a_capture_over_its_limit_is_empty() -> None:
    capture = Capture(4)
    capture.feed(b"1234")
    assert not capture.overflowed
    capture.feed(b"5")
    capture.feed(b"6")
    assert capture.overflowed
    assert capture.take() == b""
