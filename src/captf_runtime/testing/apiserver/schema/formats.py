"""The string formats that the API server checks; a format it does not know is accepted.

Each entry answers whether a text has the format. The names are those of OpenAPI, JSON schema and the
server's own additions.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
from collections.abc import Callable
from datetime import date
from urllib.parse import urlsplit

_DATE_TIME = re.compile(
    r"^(\d{4})-(\d{2})-(\d{2})[Tt](\d{2}):(\d{2}):(\d{2})(\.\d+)?([Zz]|[+-]\d{2}:\d{2})$", re.ASCII
)
_UUID = r"[0-9a-f]{8}-?[0-9a-f]{4}-?%s[0-9a-f]{3}-?%s[0-9a-f]{3}-?[0-9a-f]{12}"
_ALNUM = r"[^\W_]"
# One label may carry a hyphen only as its second character; several labels end in a top-level domain of
# letters.
_HOSTNAME = re.compile(
    rf"{_ALNUM}(-?{_ALNUM}{{0,62}})?|({_ALNUM}(({_ALNUM}|-){{0,61}}{_ALNUM})?\.)+[^\W\d_]{{2,63}}"
)
_ADDRESS = r"[^@\s<>()\[\],;:\"]+@[^@\s<>()\[\],;:\"]+"
_EMAIL = re.compile(rf"{_ADDRESS}|[^<>@]*<{_ADDRESS}>")
_DURATION_UNITS = (
    "ns|us|µs|ms|s|m|h|d|w|nanoseconds?|microseconds?|milliseconds?|seconds?|minutes?|hours?|days?|weeks?"
)
_DURATION = re.compile(
    rf"[+-]?(?:0|(?:\d+(?:\.\d+)?\s*(?:{_DURATION_UNITS}|nano|micro|milli|sec|min|hr|wk)\s*)+)"
)


def _date_time(text: str) -> bool:
    match = _DATE_TIME.match(text)
    if match is None:
        return False
    hour, minute, second = (int(match.group(index)) for index in (4, 5, 6))
    return _date(text[:10]) and hour < 24 and minute < 60 and second < 61


def _date(text: str) -> bool:
    if not re.match(r"^\d{4}-\d{2}-\d{2}$", text, re.ASCII):
        return False
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _byte(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


def _address(version: int) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        try:
            return ipaddress.ip_address(text).version == version
        except ValueError:
            return False

    return check


def _cidr(text: str) -> bool:
    if "/" not in text:
        return False
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return True


def _uri(text: str) -> bool:
    if text.startswith("/"):
        return True
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return bool(parts.scheme) and " " not in text


def _hostname(text: str) -> bool:
    return len(text) <= 255 and _HOSTNAME.fullmatch(text) is not None


def _pattern(pattern: str) -> Callable[[str], bool]:
    compiled = re.compile(pattern, re.ASCII | re.IGNORECASE)
    return lambda text: compiled.fullmatch(text) is not None


FORMATS: dict[str, Callable[[str], bool]] = {
    "date-time": _date_time,
    "datetime": _date_time,
    "date": _date,
    "byte": _byte,
    "ipv4": _address(4),
    "ipv6": _address(6),
    "cidr": _cidr,
    "mac": _pattern(
        r"([0-9a-f]{2}[:-]){5}[0-9a-f]{2}|([0-9a-f]{2}[:-]){7}[0-9a-f]{2}|([0-9a-f]{4}\.){2}[0-9a-f]{4}"
    ),
    "uri": _uri,
    "email": lambda text: _EMAIL.fullmatch(text) is not None,
    "hostname": _hostname,
    "duration": lambda text: _DURATION.fullmatch(text) is not None,
    "uuid": _pattern(_UUID % ("[0-9a-f]", "[0-9a-f]")),
    "uuid3": _pattern(_UUID % ("3", "[0-9a-f]")),
    "uuid4": _pattern(_UUID % ("4", "[89ab]")),
    "uuid5": _pattern(_UUID % ("5", "[89ab]")),
    "bsonobjectid": _pattern(r"[0-9a-f]{24}"),
    "isbn10": _pattern(r"([0-9][- ]?){9}[0-9x]"),
    "isbn13": _pattern(r"([0-9][- ]?){13}"),
    "isbn": _pattern(r"([0-9][- ]?){9}[0-9x]|([0-9][- ]?){13}"),
    "creditcard": _pattern(r"[0-9]{13,19}"),
    "ssn": _pattern(r"\d{3}[- ]?\d{2}[- ]?\d{4}"),
    "hexcolor": _pattern(r"#?([0-9a-f]{3}|[0-9a-f]{6})"),
    "rgbcolor": _pattern(r"rgb\(\s*\d{1,3}\s*,\s*\d{1,3}\s*,\s*\d{1,3}\s*\)"),
    "password": lambda text: True,
    "k8s-short-name": _pattern(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"),
    "k8s-long-name": _pattern(
        r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
    ),
}
"""Format name → whether a text has it."""
