"""Bodies in the protobuf form of Kubernetes, as kubectl sends them."""

from __future__ import annotations

import pytest

from captf_runtime.testing.apiserver.protobuf import Unreadable, decode

# What `kubectl create namespace t` sends.
NAMESPACE = bytes.fromhex(
    "6b3873000a0f0a02763112094e616d65737061636512190a110a017412001a0022002a0032003800420012001a020a001a002200"
)


def field(number: int, content: bytes | int) -> bytes:
    if isinstance(content, int):
        return bytes([number << 3]) + varint(content)
    tag = varint((number << 3) | 2)
    return tag + varint(len(content)) + content


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def envelope(api_version: str, kind: str, raw: bytes) -> bytes:
    head = field(1, api_version.encode()) + field(2, kind.encode())
    return b"k8s\x00" + field(1, head) + field(2, raw)


def named(name: str) -> bytes:
    return field(1, name.encode())


@pytest.mark.requirement("AS4")
def test_what_kubectl_sends_for_a_namespace() -> None:
    found = decode(NAMESPACE)
    assert (found["kind"], found["apiVersion"], found["metadata"]) == ("Namespace", "v1", {"name": "t"})


@pytest.mark.requirement("AS4")
def test_maps_bytes_times_numbers_and_booleans() -> None:
    entry = field(1, b"k") + field(2, b"\x00\x01")
    created = field(1, 1_700_000_000)
    metadata = named("s") + field(8, created) + field(10, 0) + field(11, field(1, b"l") + field(2, b"v"))
    found = decode(envelope("v1", "Secret", field(1, metadata) + field(2, entry) + field(5, 0)))
    assert found["data"] == {"k": "AAE="}
    assert found["immutable"] is False
    assert found["metadata"] == {
        "name": "s",
        "creationTimestamp": "2023-11-14T22:13:20Z",
        "deletionGracePeriodSeconds": 0,
        "labels": {"l": "v"},
    }


@pytest.mark.requirement("AS4")
def test_negative_numbers_and_inlined_messages() -> None:
    volume = field(1, b"v") + field(2, field(6, field(1, b"secret")))
    pod = field(1, volume) + field(4, -1)
    template = field(2, pod)
    job = field(2, field(7, -5) + field(6, template))
    found = decode(envelope("batch/v1", "Job", job))
    assert found["spec"]["backoffLimit"] == -5
    spec = found["spec"]["template"]["spec"]
    assert spec["volumes"] == [{"name": "v", "secret": {"secretName": "secret"}}]
    assert spec["terminationGracePeriodSeconds"] == -1


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b"k8s\x00\xff\xff",
        b"k8s\x00" + bytes([0x0A, 50]),
        envelope("v1", "Mystery", b""),
        envelope("v1", "Secret", field(60, b"x")),
        envelope("v1", "Secret", bytes([0x0D, 0, 0, 0, 0])),
        envelope("v1", "Secret", field(1, 5)),
    ],
)
def test_what_cannot_be_read_is_refused_as_a_whole(body: bytes) -> None:
    with pytest.raises(Unreadable):
        decode(body)
