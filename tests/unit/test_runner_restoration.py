from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from captf_controllers.runner.restoration import MOST_BYTES, RestoreError, assemble, managed_count

STATE = b'{"version": 4, "serial": 7}'


def backup(directory: Path, data: bytes, pieces: int) -> Path:
    (directory / "restore").mkdir(exist_ok=True)
    size = -(-len(data) // pieces)
    for index in range(pieces):
        (directory / "restore" / str(index)).write_bytes(data[index * size : (index + 1) * size])
    return directory


@pytest.mark.parametrize("pieces", [1, 2, 11, 32])
def test_pieces_are_joined_in_numeric_order(tmp_path: Path, pieces: int) -> None:
    assert assemble(backup(tmp_path, gzip.compress(STATE), pieces), pieces) == STATE


@pytest.mark.parametrize("chunks", [-1, 0, 33])
def test_the_number_of_pieces_is_bounded(tmp_path: Path, chunks: int) -> None:
    with pytest.raises(RestoreError, match="--restore-chunks"):
        assemble(backup(tmp_path, gzip.compress(STATE), 1), chunks)


def test_only_the_first_gzip_member_counts(tmp_path: Path) -> None:
    data = gzip.compress(STATE) + gzip.compress(b"ignored") + b"junk"
    assert assemble(backup(tmp_path, data, 2), 2) == STATE


def test_a_missing_piece_is_named(tmp_path: Path) -> None:
    with pytest.raises(RestoreError, match="piece 2"):
        assemble(backup(tmp_path, gzip.compress(STATE), 2), 3)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(gzip.compress(STATE)[:-9], id="cut short"),
        pytest.param(b"plain text, not compressed", id="not gzip"),
        pytest.param(gzip.compress(b"not JSON"), id="not JSON"),
        pytest.param(b"", id="empty"),
    ],
)
def test_damage_is_refused_without_quoting_it(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(RestoreError) as caught:
        assemble(backup(tmp_path, data, 1), 1)
    assert "plain text" not in str(caught.value)
    assert "not JSON" not in str(caught.value)


def test_size_is_bounded_after_decompression(tmp_path: Path) -> None:
    exact = b'"' + b"a" * (MOST_BYTES - 2) + b'"'
    assert assemble(backup(tmp_path, gzip.compress(exact, 1), 3), 3) == exact
    with pytest.raises(RestoreError, match="more than"):
        assemble(backup(tmp_path, gzip.compress(exact + b" ", 1), 3), 3)


def test_random_pieces_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RestoreError):
        assemble(backup(tmp_path, os.urandom(4096), 2), 2)


@pytest.mark.parametrize(
    ("address", "managed"),
    [
        ("aws_instance.web", 1),
        ("data.aws_ami.base", 0),
        ("module.role.aws_instance.web[0]", 1),
        ("module.role.data.aws_ami.base", 0),
        ("module.a.module.b.data.x.y", 0),
        ('module.a["x.data.y"].aws_instance.z', 1),
        ('module.a["]."].data.x.y', 0),
        ('module.a["q\\".data."].module.b[3].data.x.y', 0),
        ('module.a["q\\".data."].module.b[3].x.y["data.z"]', 1),
        ("module.data.x.y", 1),
        ("module.data.data.x.y", 0),
        ("database.main", 1),
        ("", 0),
        ("   ", 0),
    ],
)
def test_managed_addresses_are_told_from_data(address: str, managed: int) -> None:
    assert managed_count(address + "\n") == managed


def test_all_lines_count() -> None:
    assert managed_count("a.b\n\nmodule.m.c.d\ndata.e.f\n") == 2
