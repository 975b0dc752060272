"""Selectors of the API server as they stand in queries."""

from __future__ import annotations

import pytest

from captf_runtime.testing.apiserver.selectors import parse_fields, parse_labels
from captf_runtime.testing.apiserver.status import ApiStatus


@pytest.mark.requirement("AS25")
@pytest.mark.parametrize(
    ("selector", "labels", "matches"),
    [
        ("", {}, True),
        ("a", {"a": ""}, True),
        ("a", {}, False),
        ("!a", {}, True),
        ("!a", {"a": "x"}, False),
        ("a=x", {"a": "x"}, True),
        ("a==x", {"a": "y"}, False),
        ("a=", {"a": ""}, True),
        ("a!=x", {}, True),
        ("a!=x", {"a": "x"}, False),
        ("a in (x, y)", {"a": "y"}, True),
        ("a in (x)", {}, False),
        ("a notin (x,y)", {}, True),
        ("a notin (x,y)", {"a": "x"}, False),
        ("a in ()", {"a": ""}, True),
        ("a>3", {"a": "4"}, True),
        ("a<3", {"a": "4"}, False),
        ("a>3", {"a": "no number"}, False),
        ("example.io/a=x,b", {"example.io/a": "x", "b": "1"}, True),
        ("a=x,!b", {"a": "x", "b": "1"}, False),
    ],
)
def test_label_selectors(selector: str, labels: dict[str, str], matches: bool) -> None:
    assert parse_labels(selector).matches(labels) is matches


@pytest.mark.requirement("AS25")
@pytest.mark.parametrize(
    ("selector", "message"),
    [
        ("a,", "found '', expected: identifier after ','"),
        (",a", "found ',', expected: !, identifier, or 'end of string'"),
        ("a=b=c", "found '=', expected: ',' or 'end of string'"),
        ("a in b", "unable to parse requirement: found 'b' expected: '('"),
        ("a foo b", "unable to parse requirement: found 'foo', expected: in, notin, =, ==, !=, gt, lt"),
    ],
)
def test_what_cannot_be_read(selector: str, message: str) -> None:
    with pytest.raises(ApiStatus) as refused:
        parse_labels(selector)
    assert (refused.value.code, refused.value.message) == (400, message)


@pytest.mark.requirement("AS25")
def test_field_selectors() -> None:
    selector = parse_fields(r"a=1,b!=2,c==x\,y")
    assert selector.matches({"a": "1", "c": "x,y"})
    assert not selector.matches({"a": "1", "b": "2", "c": "x,y"})
    assert selector.exact("a") == "1"
    assert selector.exact("b") is None
    assert selector.fields() == ("a", "b", "c")
    with pytest.raises(ApiStatus, match="can't understand 'nonsense'"):
        parse_fields("a=1,nonsense")
