"""What a set of state Secrets says, whatever is in it."""

from __future__ import annotations

import gzip
import json
import random
import time
import tracemalloc
import zlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.state_secrets import SUFFIX, chunks_of, document, payload, secret, state_secrets

from captf_controllers.state.reading import (
    CHUNK_BYTES,
    MAX_STATE_BYTES,
    StateProblem,
    chunk_index,
    classify,
)
from captf_runtime.objects import name_of

BASE = f"tfstate-default-{SUFFIX}"


def test_no_secret_is_no_state() -> None:
    reading = classify(SUFFIX, [])
    assert reading.no_state
    assert not reading.readable
    assert reading.reason == ""


def test_a_state_in_one_secret() -> None:
    outputs = {"provider_id": "p", "exports": {"b": 1.5, "a": [1]}}
    data = payload(document(serial=7, outputs=outputs, resources=3))
    reading = classify(SUFFIX, state_secrets([data], annotations={"captf.io/inputs-hash": "h2:x"}))
    state = reading.state
    assert state is not None
    assert (state.serial, state.lineage, state.terraform_version) == (7, "6e1f0c5a", "1.11.4")
    assert state.managed_resources == 3
    assert state.bytes == len(data)
    assert state.inputs_hash == "h2:x"
    assert [name_of(item) for item in state.secrets] == [BASE]
    assert "data" not in state.secrets[0]
    assert json.loads(state.outputs["provider_id"].value) == "p"
    assert state.outputs["provider_id"].sensitive


def test_output_values_keep_number_literals_and_key_order() -> None:
    text = document().replace(b'"outputs": {}', b'"outputs": {"exports": {"value": {"b":1.50,"a":1e3}}}')
    state = classify(SUFFIX, state_secrets([payload(text)])).state
    assert state is not None
    assert state.outputs["exports"].value == b'{"b":1.50,"a":1e3}'
    assert state.outputs["exports"].type == b"null"
    assert not state.outputs["exports"].sensitive


def test_chunks_are_read_in_index_order_whatever_the_list_order() -> None:
    noise = random.Random(1).randbytes(40_000).hex()
    data = payload(document(outputs={"note": noise}))
    pieces = chunks_of(data, 2000)
    assert len(pieces) > 11  # -part-10 sorts before -part-2 by name
    secrets = state_secrets(pieces)
    random.Random(2).shuffle(secrets)
    state = classify(SUFFIX, secrets).state
    assert state is not None
    assert [name_of(item) for item in state.secrets] == [
        BASE,
        *(f"{BASE}-part-{index}" for index in range(1, len(pieces))),
    ]
    assert state.bytes == len(data)
    assert json.loads(state.outputs["note"].value) == noise


def test_a_stale_trailing_chunk_does_not_hide_the_state() -> None:
    data = payload(document(serial=9))
    reading = classify(SUFFIX, state_secrets([data, b"rest of an older stream"]))
    assert reading.state is not None
    assert reading.state.serial == 9
    assert len(reading.state.secrets) == 2
    assert reading.state.bytes == len(data) + len(b"rest of an older stream")


def test_only_the_first_gzip_member_is_read() -> None:
    reading = classify(SUFFIX, state_secrets([payload(document(serial=3)) + payload(document(serial=4))]))
    assert reading.state is not None
    assert reading.state.serial == 3


@pytest.mark.parametrize(
    "name",
    [
        f"{BASE}-part-x",
        f"{BASE}-part-0",
        f"{BASE}-part-01",
        f"{BASE}-part-",
        "other",
        f"{BASE}-part-1-part-1",
    ],
)
def test_a_stray_secret_is_inconsistent(name: str) -> None:
    secrets = [*state_secrets([payload(document())]), secret(name, b"x")]
    reading = classify(SUFFIX, secrets)
    assert reading.problem is StateProblem.INCONSISTENT
    assert name in reading.message
    assert reading.reason == "StateInconsistent"


@pytest.mark.parametrize(
    ("present", "missing"), [((1,), BASE), ((0, 2), f"{BASE}-part-1"), ((0, 1, 3), f"{BASE}-part-2")]
)
def test_a_missing_chunk_is_inconsistent(present: tuple[int, ...], missing: str) -> None:
    secrets = state_secrets(chunks_of(payload(document(outputs={"x": "y" * 500})), 40)[:4])
    reading = classify(SUFFIX, [secrets[index] for index in present])
    assert reading.problem is StateProblem.INCONSISTENT
    assert f"Secret {missing}" in reading.message


def test_a_chunk_twice_is_inconsistent() -> None:
    secrets = state_secrets([payload(document())])
    reading = classify(SUFFIX, [*secrets, *secrets])
    assert reading.problem is StateProblem.INCONSISTENT
    assert "twice" in reading.message


def test_a_missing_last_chunk_is_inconsistent() -> None:
    pieces = chunks_of(payload(document(outputs={"x": random.Random(3).randbytes(500).hex()})), 200)
    reading = classify(SUFFIX, state_secrets(pieces[:-1]))
    assert reading.problem is StateProblem.INCONSISTENT
    assert "last chunk is missing" in reading.message


def test_a_lone_full_chunk_misses_its_successor() -> None:
    stored = zlib.compressobj(0, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    data = stored.compress(document(outputs={"x": "y" * (CHUNK_BYTES + 1000)})) + stored.flush()
    reading = classify(SUFFIX, state_secrets([data[:CHUNK_BYTES]]))
    assert reading.problem is StateProblem.INCONSISTENT
    assert classify(SUFFIX, state_secrets([data[: CHUNK_BYTES - 1]])).problem is StateProblem.CORRUPT
    assert classify(SUFFIX, state_secrets(chunks_of(data, CHUNK_BYTES))).readable


def test_a_secret_without_payload_is_inconsistent() -> None:
    pieces = state_secrets([payload(document())])
    reading = classify(SUFFIX, [*pieces, secret(f"{BASE}-part-1", None)])
    assert reading.problem is StateProblem.INCONSISTENT
    assert f"{BASE}-part-1 has no data key tfstate" in reading.message


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"not gzip",
        payload(document())[:-9],
        payload(document())[:5],
        payload(document())[:-8] + b"\0" * 8,
    ],
    ids=["empty", "no gzip", "cut short", "cut in the header", "wrong checksum"],
)
def test_a_damaged_payload_is_corrupt(data: bytes) -> None:
    reading = classify(SUFFIX, state_secrets([data]))
    assert reading.problem is StateProblem.CORRUPT
    assert reading.reason == "StateCorrupt"
    assert BASE in reading.message


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"x"',
        document() + b"x",
        document(serial="7"),  # type: ignore[arg-type]
        document(serial=2**63),
        document(lineage=7),
        document(terraform_version=None),
        document().replace(b'"outputs": {}', b'"outputs": []'),
        document().replace(b'"outputs": {}', b'"outputs": {"a": {"value": 1, "sensitive": "yes"}}'),
        document().replace(b'"mode": "data"', b'"mode": 7'),
    ],
)
def test_a_document_that_is_no_state_is_corrupt(text: bytes) -> None:
    reading = classify(SUFFIX, state_secrets([payload(text)]))
    assert reading.problem is StateProblem.CORRUPT


def test_absent_fields_have_their_zero_value() -> None:
    state = classify(SUFFIX, state_secrets([payload(b'{"version":4,"outputs":null,"resources":null}')])).state
    assert state is not None
    assert (state.serial, state.lineage, state.managed_resources, dict(state.outputs)) == (0, "", 0, {})


def test_an_encrypted_state_is_reported_before_its_missing_version() -> None:
    envelope = b'{"meta":{"key":"x"},"encrypted_data":"abc","encryption_version":"v0"}'
    reading = classify(SUFFIX, state_secrets([payload(envelope)]))
    assert reading.problem is StateProblem.ENCRYPTED
    assert reading.reason == "StateEncrypted"
    assert classify(SUFFIX, state_secrets([payload(document(encryption_version=None))])).readable


@pytest.mark.parametrize(
    ("version", "named"),
    [
        ("5", "version 5"),
        ("3", "version 3"),
        ('"4"', "no known version"),
        ("4.0", "no known"),
        ("null", "no known"),
    ],
)
def test_another_version_is_corrupt(version: str, named: str) -> None:
    text = document().replace(b'"version": 4', b'"version": ' + version.encode())
    reading = classify(SUFFIX, state_secrets([payload(text)]))
    assert reading.problem is StateProblem.UNSUPPORTED_VERSION
    assert reading.reason == "StateCorrupt"
    assert reading.problem.metric == "corrupt"
    assert named in reading.message


def test_a_missing_version_is_corrupt() -> None:
    reading = classify(SUFFIX, state_secrets([payload(b"{}")]))
    assert reading.problem is StateProblem.UNSUPPORTED_VERSION


def test_the_limit_on_the_decompressed_size_is_inclusive() -> None:
    text = document(outputs={"x": ""})
    room = MAX_STATE_BYTES - len(text)
    fits = text.replace(b'"x": {"value": ""', b'"x": {"value": "' + b"y" * room + b'"')
    assert len(fits) == MAX_STATE_BYTES
    assert classify(SUFFIX, state_secrets([payload(fits)])).readable
    over = classify(SUFFIX, state_secrets([payload(fits + b" ")]))
    assert over.problem is StateProblem.CORRUPT
    assert "16777216" in over.message


def test_a_decompression_bomb_costs_little() -> None:
    stream = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    bomb = b"".join(stream.compress(b" " * 1_000_000) for _ in range(700)) + stream.flush()
    started = time.thread_time()
    tracemalloc.start()
    reading = classify(SUFFIX, state_secrets([bomb]))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert reading.problem is StateProblem.CORRUPT
    assert peak < 4 * MAX_STATE_BYTES
    assert time.thread_time() - started < 5


@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
@pytest.mark.parametrize("where", ["ignored", "output", "top"])
def test_deep_nesting_is_corrupt_and_not_fatal(opening: bytes, where: str) -> None:
    deep = opening * 200_000
    text = {
        "ignored": b'{"version":4,"x":' + deep,
        "output": b'{"version":4,"outputs":{"a":{"value":' + deep,
        "top": deep,
    }[where]
    assert classify(SUFFIX, state_secrets([payload(text)])).problem is StateProblem.CORRUPT


def test_ten_thousand_chunks_are_refused_before_any_is_looked_at() -> None:
    secrets = [secret("stray", None)] * 10_000
    started = time.thread_time()
    reading = classify(SUFFIX, secrets)
    assert reading.problem is StateProblem.CORRUPT
    assert "10000" in reading.message
    assert time.thread_time() - started < 1


@pytest.mark.parametrize(("count", "readable"), [(32, True), (33, False)])
def test_the_limit_on_secrets_is_inclusive(count: int, readable: bool) -> None:
    pieces = [payload(document()), *([b"stale"] * (count - 1))]
    assert classify(SUFFIX, state_secrets(pieces)).readable is readable


def test_no_message_holds_content() -> None:
    for text in (
        document(serial="s3cret"),  # type: ignore[arg-type]
        document(version="s3cret"),
        b'{"version":4,"outputs":{"a":{"value":1,"sensitive":"s3cret"}}}',
        b"s3cret",
    ):
        assert "s3cret" not in classify(SUFFIX, state_secrets([payload(text)])).message


def test_a_reading_shows_no_output_when_printed() -> None:
    reading = classify(SUFFIX, state_secrets([payload(document(outputs={"a": "s3cret"}))]))
    assert "s3cret" not in repr(reading)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(
    fields=st.dictionaries(
        st.sampled_from(
            [
                "version",
                "serial",
                "lineage",
                "outputs",
                "resources",
                "encryption_version",
                "terraform_version",
                "z",
            ]
        ),
        json_values,
    )
)
@settings(max_examples=200, deadline=None)
def test_any_document_has_an_answer(fields: dict[str, Any]) -> None:
    reading = classify(SUFFIX, state_secrets([payload(json.dumps(fields).encode())]))
    assert reading.readable or reading.problem is not None


@given(data=st.binary(max_size=200), names_=st.lists(st.text(max_size=40), max_size=4), base=st.booleans())
@settings(max_examples=200, deadline=None)
def test_any_set_of_secrets_has_an_answer(data: bytes, names_: list[str], base: bool) -> None:
    secrets = [secret(name, data) for name in names_]
    if base:
        secrets.append(secret(BASE, data))
    reading = classify(SUFFIX, secrets)
    assert reading.no_state is (not secrets)


@given(cut=st.integers(0, 400), flip=st.integers(0, 400), change=st.integers(1, 255))
@settings(max_examples=200, deadline=None)
def test_damaged_gzip_is_never_taken_for_another_state(cut: int, flip: int, change: int) -> None:
    good = payload(document(serial=12, outputs={"x": "abcdefgh" * 10}))
    data = bytearray(good[: len(good) - cut] if cut < len(good) else good)
    if flip < len(data):
        data[flip] ^= change
    state = classify(SUFFIX, state_secrets([bytes(data)])).state
    if state is not None:
        # Only a header byte that does not matter (time, system) may have changed.
        assert gzip.decompress(bytes(data)) == gzip.decompress(good)


@given(st.text(max_size=60))
def test_a_chunk_index_is_its_own_canonical_text(text: str) -> None:
    index = chunk_index(BASE, f"{BASE}-part-{text}")
    assert index is None or (index >= 1 and str(index) == text)
