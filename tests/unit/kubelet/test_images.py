"""Image references, and which image stands for one."""

from __future__ import annotations

import pytest

from captf_runtime.testing.kubelet.images import Image, is_valid_reference, repository_of, resolver_for

DIGEST = "sha256:" + "0" * 64
OTHER = "sha256:" + "1" * 64


@pytest.mark.parametrize(
    ("reference", "valid"),
    [
        ("registry.example:5000/team/module:1.2.3", True),
        ("module", True),
        (f"registry.example/module@{DIGEST}", True),
        (f"registry.example/module:1@{DIGEST}", True),
        ("", False),
        ("Module:1", False),
        ("registry.example/module:", False),
        ("registry.example/module@sha256:12", False),
        ("a b", False),
        ("registry.example/module:1\n", False),
    ],
)
def test_references(reference: str, valid: bool) -> None:
    assert is_valid_reference(reference) is valid


@pytest.mark.parametrize(
    ("reference", "repository"),
    [
        ("registry.example:5000/team/module:1", "registry.example:5000/team/module"),
        ("registry.example:5000/module", "registry.example:5000/module"),
        (f"module:1@{DIGEST}", "module"),
    ],
)
def test_the_repository_lacks_tag_and_digest(reference: str, repository: str) -> None:
    assert repository_of(reference) == repository


def test_a_mapping_is_asked_by_reference_then_without_digest_then_by_repository() -> None:
    tagged, plain = Image(None, DIGEST), Image(None, OTHER)
    resolve = resolver_for({"r.io/module:1": tagged, "r.io/module": plain})
    assert resolve("r.io/module:1") is tagged
    assert resolve(f"r.io/module:1@{DIGEST}") is tagged
    assert resolve("r.io/module:2") is plain
    assert resolve(f"r.io/module@{OTHER}") is plain
    assert resolve("r.io/other:1") is None


def test_a_digest_that_is_not_the_images_finds_nothing() -> None:
    resolve = resolver_for({"r.io/module:1": Image(None, DIGEST)})
    assert resolve(f"r.io/module:1@{OTHER}") is None


def test_bad_descriptions_of_images_name_the_field() -> None:
    with pytest.raises(ValueError, match="digest"):
        Image(None, "latest")
    with pytest.raises(ValueError, match="executables"):
        Image(None, DIGEST, executables={"runner": ["true"]})
