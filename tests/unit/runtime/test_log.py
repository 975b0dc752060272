from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from captf_runtime import log


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    level = log.get_level()
    stream = io.StringIO()
    yield stream
    log.configure(level, "text", None)


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


@pytest.mark.requirement("G5")
def test_lines_carry_the_bound_pairs(stream: io.StringIO) -> None:
    log.configure("info", "json", stream)
    logger = log.get_logger("work")
    with log.bound(
        controller="machines", kind="Machine", namespace="default", name="m-1", reconcileID="some-id"
    ):
        logger.info("created", job="j-1")
    logger.info("outside")
    inside, outside = lines(stream)
    assert inside["msg"] == "created"
    assert inside["logger"] == "work"
    assert inside["level"] == "info"
    assert inside["job"] == "j-1"
    assert str(inside["caller"]).startswith("test_log.py:")
    assert isinstance(inside["ts"], float)
    expected = {"controller": "machines", "kind": "Machine", "namespace": "default", "name": "m-1"}
    assert expected.items() <= inside.items()
    assert inside["reconcileID"] == "some-id"
    assert "controller" not in outside


@pytest.mark.requirement("G5")
@pytest.mark.parametrize("key", ["token", "Authorization", "body", "data", "stringData", "password"])
@pytest.mark.parametrize("format", ["json", "text"])
def test_values_under_secret_keys_are_never_rendered(
    stream: io.StringIO, key: str, format: log.Format
) -> None:
    log.configure("debug", format, stream)
    log.get_logger().error("oops", **{key: "hunter2"})
    assert "hunter2" not in stream.getvalue()
    assert "[redacted]" in stream.getvalue()


def test_the_level_changes_while_running(stream: io.StringIO) -> None:
    log.configure("warning", "json", stream)
    logger = log.get_logger().bind(part="x")
    logger.info("hidden")
    log.set_level("debug")
    assert log.get_level() == "debug"
    logger.debug("shown")
    log.set_level("error")
    logger.warning("hidden too")
    assert [line["msg"] for line in lines(stream)] == ["shown"]


def test_unknown_levels_and_formats_are_refused() -> None:
    with pytest.raises(ValueError, match="one of debug, info, warning, error"):
        log.set_level("trace")
    with pytest.raises(ValueError, match="text or json"):
        log.configure("info", "xml")  # type: ignore[arg-type]


def test_errors_are_rendered_with_type_and_stack(stream: io.StringIO) -> None:
    log.configure("info", "json", stream)
    logger = log.get_logger()
    try:
        raise KeyError("missing")
    except KeyError as error:
        logger.exception("failed")
        logger.error("failed", err=error)
    first, second = lines(stream)
    assert first["err"] == second["err"] == "KeyError: 'missing'"
    assert "test_errors_are_rendered_with_type_and_stack" in str(first["stack"])
    assert "stack" not in second


def test_text_is_readable(stream: io.StringIO) -> None:
    log.configure("info", "text", stream)
    log.get_logger("x").warning(
        "held",
        Machine={"namespace": "default", "name": "m-1"},
        why='a "quote"\nand a line',
        err=OSError("no"),
    )
    text = stream.getvalue()
    assert "WARNING held" in text
    assert 'Machine="default/m-1"' in text
    assert 'why="a \\"quote\\"\n    and a line"' in text
    assert text.endswith('err="OSError: no"\n')


def test_other_libraries_come_through_from_warning_on(stream: io.StringIO) -> None:
    log.configure("debug", "json", stream)
    other = logging.getLogger("some.library")
    other.debug("response body: %s", "hunter2")
    other.warning("pool is %s", "full")
    assert [(line["msg"], line["logger"]) for line in lines(stream)] == [("pool is full", "some.library")]


def test_a_closed_stream_does_not_end_the_caller(stream: io.StringIO) -> None:
    closed = io.StringIO()
    log.configure("info", "json", closed)
    closed.close()
    log.get_logger().info("nobody hears this")


def test_a_text_line_holds_no_control_characters_and_no_second_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    log.configure("info", "text")
    log.get_logger("x").warning("m\x1b[2J\nlevel=info forged", err=ValueError("e\x07\x9b31m"), name="n\r\x00")
    first, second = capsys.readouterr().err.splitlines()
    assert "m\\x1b[2J" in first
    assert second.startswith("    level=info forged")
    assert 'name="n\\x0d\\x00" err="ValueError: e\\x07\\x9b31m"' in second
