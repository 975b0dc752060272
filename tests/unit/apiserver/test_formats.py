"""String formats."""

from __future__ import annotations

import pytest

from captf_runtime.testing.apiserver.schema.formats import FORMATS

VALID = {
    "date-time": ["2020-01-01T00:00:00Z", "2020-01-01t00:00:00.5z", "2020-02-29T23:59:60+02:00"],
    "date": ["2020-02-29"],
    "byte": ["", "YQ==", "YWI="],
    "ipv4": ["1.2.3.4"],
    "ipv6": ["::1", "fe80::1"],
    "cidr": ["10.0.0.0/8", "::/0", "10.0.0.1/8"],
    "mac": ["01:23:45:67:89:ab", "01-23-45-67-89-AB", "0123.4567.89ab"],
    "uri": ["http://a/b", "/x", "urn:a", "http:"],
    "email": ["a@b", "a@b.c", "Foo <a@b>"],
    "hostname": ["localhost", "a.com", "A.io", "sub.domain.example"],
    "duration": ["1h", "1h30m", "3 days", "1.5h", "-1h", "0", "2hours", "1w2d"],
    "uuid": ["123e4567-e89b-12d3-a456-426614174000", "123E4567E89B12D3A456426614174000"],
    "uuid4": ["123e4567-e89b-42d3-a456-426614174000"],
    "password": ["anything"],
}
INVALID = {
    "date-time": ["2020-01-01", "2020-01-01 00:00:00Z", "2020-13-01T00:00:00Z", "2020-01-01T25:00:00Z", "x"],
    "date": ["2020-02-30", "20200101", "x"],
    "byte": ["YQ", "!!"],
    "ipv4": ["::1", "1.2.3", "x"],
    "ipv6": ["1.2.3.4", "x"],
    "cidr": ["10.0.0.0", "x/8"],
    "mac": ["01:23:45", "x"],
    "uri": ["x", ":", "a b", "http://a b"],
    "email": ["x", "a b@c", "@a"],
    "hostname": ["a_b", "a.b", "a.b.c1", "1.2.3.4", "a..b", "-a", "my-host", ""],
    "duration": ["x", "5", "10", "1 fortnight"],
    "uuid": ["x", "123e4567"],
    "uuid4": ["123e4567-e89b-12d3-a456-426614174000"],
}

pytestmark = pytest.mark.requirement("AS16")


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in VALID.items() for text in texts])
def test_valid(name: str, text: str) -> None:
    assert FORMATS[name](text)


@pytest.mark.parametrize(
    ("name", "text"), [(name, text) for name, texts in INVALID.items() for text in texts]
)
def test_invalid(name: str, text: str) -> None:
    assert not FORMATS[name](text)


def test_unknown_formats_are_not_listed() -> None:
    assert "wibble" not in FORMATS
