"""Hashes of what a module receives.

The scheme prefix `h2` is part of every hash: a changed scheme applies mutable objects once more.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from hashlib import sha256

from .canonical import Json, canonical, canonical_any_number
from .kinds import Role

SCHEME = "h2"
CONTRACT = "v1alpha1"
"""Version of the module contract."""

EMPTY_EXPORTS_HASH = "h2:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"


def inputs_hash(
    role: Role,
    image: str,
    inputs: Mapping[str, Json],
    variables: Mapping[str, Json] | None = None,
    sensitive: Collection[str] = (),
) -> str:
    """Return the hash of everything that a changed spec changes for a module.

    A pool's `replicas` count as 0 while autoscaling is enabled: then the module follows the observed
    number, which must not cause an apply.

    Args:
        role: the module's role.
        image: the image reference as the spec writes it, never the digest that it resolves to.
        inputs: every contract input of the role, by name.
        variables: the merged user variables; None or empty when the object has none.
        sensitive: names of the variables whose value came from a Secret.

    Raises:
        JsonError: a contract input holds a number with a fraction or an exponent.
    """
    hashed = dict(inputs)
    autoscaling = inputs.get("autoscaling")
    if role == "machinepool" and isinstance(autoscaling, Mapping) and autoscaling.get("enabled") is True:
        hashed["replicas"] = 0
    covered: dict[str, Json] = {
        "scheme": SCHEME,
        "contract": CONTRACT,
        "role": role,
        "image": image,
        "inputs": hashed,
    }
    if variables:
        covered["variables"] = canonical_any_number({"sensitive": sorted(sensitive), "values": variables})
    return _hash(canonical(covered))


def approval_hash(
    role: Role,
    image: str,
    inputs: Mapping[str, Json],
    variables: Mapping[str, Json] | None = None,
    sensitive: Collection[str] = (),
) -> str:
    """Return the hash that an approval of a plan covers.

    It is the inputs hash but for a pool's bootstrap data, which rotates every few minutes and would
    invalidate every approval.

    Raises:
        JsonError: as `inputs_hash`.
    """
    covered = {**inputs, "bootstrap_data": ""} if role == "machinepool" else inputs
    return inputs_hash(role, image, covered, variables, sensitive)


def exports_hash(exports: Json) -> str:
    """Return the hash of a cluster's exports; None hashes as the empty object.

    Raises:
        JsonError: the exports are not JSON.
    """
    return _hash(canonical_any_number({} if exports is None else exports))


def _hash(text: str) -> str:
    return f"{SCHEME}:{sha256(text.encode()).hexdigest()}"
