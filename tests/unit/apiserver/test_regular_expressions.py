"""Patterns of the server's dialect."""

from __future__ import annotations

import pytest

from captf_runtime.testing.apiserver.schema.regular_expressions import PatternError, compile_pattern

pytestmark = pytest.mark.requirement("AS16")


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        ("^[a-z]+$", "abc", True),
        ("^[a-z]+$", "abc\n", False),
        ("b", "abc", True),
        (r"^a\z", "a", True),
        (r"^a\z", "a\n", False),
        ("^[[:alpha:]]+$", "aZ", True),
        ("^[[:alpha:]_]+$", "a_1", False),
        ("^[^[:digit:]]$", "7", False),
        (r"^\d$", "٣", False),
        ("^(?i)abc$", "ABC", True),
        ("^a(?i)b$", "aB", True),
        ("^a(?i)b$", "AB", False),
        (r"^\p{L}+$", "äß", True),
        (r"^\pL+$", "ab1", False),
        (r"^\Qa.b\E$", "a.b", True),
        (r"^\Qa.b\E$", "axb", False),
        (r"^[]a]+$", "]a", True),
        (r"^[^]a]+$", "b", True),
        (r"^[\]]$", "]", True),
        ("^[[]$", "[", True),
        ("^a{2,3}$", "aaa", True),
        (r"^\$$", "$", True),
    ],
)
def test_matches(pattern: str, text: str, matches: bool) -> None:
    assert (compile_pattern(pattern).search(text) is not None) == matches


@pytest.mark.parametrize(
    ("pattern", "detail"),
    [
        ("([", "missing closing ]: `[`"),
        ("(a", "missing closing ): `(a`"),
        ("a)", "unexpected ): `a)`"),
        ("*a", "missing argument to repetition operator: `*`"),
        ("a(?=b)", "invalid or unsupported Perl syntax: `(?=`"),
        (r"\1", r"invalid escape sequence: `\1`"),
        ("a{3,1}", "invalid repeat count: `{3,1}`"),
        ("a{2000}", "invalid repeat count: `{2000}`"),
    ],
)
def test_refused(pattern: str, detail: str) -> None:
    with pytest.raises(PatternError) as caught:
        compile_pattern(pattern)
    assert str(caught.value) == f"error parsing regexp: {detail}"
