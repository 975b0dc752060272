"""Patterns of the server's regular expression dialect (RE2) as Python ones.

The two dialects differ in few places that matter for schemas: `$` means the end of the text and not also
before a last line break, `\\z` is `\\Z`, flags may appear in the middle, named POSIX classes exist,
look-around and back-references do not.
"""

from __future__ import annotations

import functools
import re
import unicodedata

_POSIX = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "ascii": "\\x00-\\x7f",
    "blank": "\\t ",
    "cntrl": "\\x00-\\x1f\\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": "!-/:-@\\[-`{-~",
    "space": "\\t\\n\\v\\f\\r ",
    "upper": "A-Z",
    "word": "0-9A-Za-z_",
    "xdigit": "0-9A-Fa-f",
}


_REPEAT = re.compile(r"(?<!\\)\{(\d+)(?:,(\d*))?\}")
_MAX_REPEAT = 1000


_CATEGORIES = frozenset({"L", "M", "N", "P", "S", "Z", "C"})


@functools.cache
def _category(name: str) -> str:
    """The inside of a character class that stands for a Unicode category such as `L` or `Nd`."""
    ranges: list[str] = []
    start = -1
    for code in range(0x110001):
        inside = code < 0x110000 and unicodedata.category(chr(code)).startswith(name)
        if inside and start < 0:
            start = code
        elif not inside and start >= 0:
            ranges.append(f"\\U{start:08x}" + (f"-\\U{code - 1:08x}" if code - 1 > start else ""))
            start = -1
    return "".join(ranges)


class PatternError(ValueError):
    """A pattern that the server would refuse; the text is the server's explanation as far as it is known."""


@functools.lru_cache(maxsize=4096)
def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Compile a pattern of a schema for `search`.

    Raises:
        PatternError: the pattern is not a regular expression of the server's dialect.
    """
    try:
        for low, high in _REPEAT.findall(pattern):
            if int(low) > _MAX_REPEAT or (high and (int(high) > _MAX_REPEAT or int(high) < int(low))):
                counts = f"{low},{high}" if high else low
                raise PatternError(f"error parsing regexp: invalid repeat count: `{{{counts}}}`")
        return re.compile(_translate(pattern), re.ASCII)
    except (re.error, OverflowError) as error:
        raise PatternError(_explanation(pattern, error)) from error


def _explanation(pattern: str, error: Exception) -> str:
    if isinstance(error, re.error):
        if "unterminated character set" in error.msg and error.pos is not None:
            return f"error parsing regexp: missing closing ]: `{pattern[error.pos :]}`"
        if "missing )" in error.msg:
            return f"error parsing regexp: missing closing ): `{pattern}`"
        if "unbalanced parenthesis" in error.msg:
            return f"error parsing regexp: unexpected ): `{pattern}`"
        if "nothing to repeat" in error.msg and error.pos is not None:
            return f"error parsing regexp: missing argument to repetition operator: `{pattern[error.pos]}`"
    return f"error parsing regexp: {error}: `{pattern}`"


def _translate(pattern: str) -> str:
    out: list[str] = []
    index, depth_class = 0, False
    while index < len(pattern):
        character = pattern[index]
        if character == "\\":
            following = pattern[index + 1 : index + 2]
            if following in ("p", "P"):
                name, index = _unicode_name(pattern, index + 2)
                if name[:1] not in _CATEGORIES or len(name) > 2:
                    raise PatternError(
                        f"error parsing regexp: invalid character class range: `\\{following}{name}`"
                    )
                body = _category(name)
                negated = following == "P"
                if depth_class and negated:
                    raise PatternError(f"error parsing regexp: invalid character class range: `\\P{name}`")
                out.append(body if depth_class else f"[{'^' if negated else ''}{body}]")
                continue
            if following.isdigit() and following != "0":
                raise PatternError(f"error parsing regexp: invalid escape sequence: `\\{following}`")
            if following == "z":
                out.append("\\Z")
            elif following in ("Z", "G"):
                raise PatternError(f"error parsing regexp: invalid escape sequence: `\\{following}`")
            elif following == "Q":
                end = pattern.find("\\E", index)
                literal = pattern[index + 2 : end if end >= 0 else len(pattern)]
                out.append(re.escape(literal))
                index = end + 2 if end >= 0 else len(pattern)
                continue
            else:
                out.append(character + following)
            index += 2
            continue
        if depth_class:
            if character == "[" and pattern.startswith("[:", index):
                end = pattern.find(":]", index)
                name = pattern[index + 2 : end] if end > 0 else ""
                if name in _POSIX:
                    out.append(_POSIX[name])
                    index = end + 2
                    continue
            if character == "]":
                depth_class = False
            out.append("\\[" if character == "[" else character)
        elif character == "[":
            depth_class = True
            out.append(character)
            if pattern.startswith("^", index + 1):
                out.append("^")
                index += 1
            if pattern.startswith("]", index + 1):
                out.append("\\]")
                index += 1
        elif character == "$":
            out.append("\\Z")
        elif character == "(" and re.match(r"\(\?(=|!|<=|<!)", pattern[index:]):
            raise PatternError(
                f"error parsing regexp: invalid or unsupported Perl syntax: `{pattern[index : index + 3]}`"
            )
        else:
            out.append(character)
        index += 1
    return _leading_flags("".join(out))


def _unicode_name(pattern: str, index: int) -> tuple[str, int]:
    if pattern.startswith("{", index):
        end = pattern.find("}", index)
        return pattern[index + 1 : end], end + 1
    return pattern[index : index + 1], index + 1


def _leading_flags(pattern: str) -> str:
    """Give flags that stand in the middle a group of their own: `a(?i)b` becomes `a(?i:b)`."""
    match = re.search(r"(?<!\\)\(\?([imsU]+)\)", pattern)
    if match is None or match.start() == 0:
        return pattern
    return f"{pattern[: match.start()]}(?{match.group(1)}:{pattern[match.end() :]})"
