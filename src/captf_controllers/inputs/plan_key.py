"""The key with which plan hashes of an object are made, so that they reveal nothing of the plan."""

from __future__ import annotations

import base64
import binascii
import secrets
from typing import Final

from captf_controllers.api import names
from captf_controllers.api.owner import Owner
from captf_runtime.client.errors import AlreadyExists, NotFound
from captf_runtime.client.verbs import Verbs
from captf_runtime.objects import SECRET, Object, resource_version_of

from .records import record_secret

KEY: Final = "key"
KEY_BYTES: Final = 32


def ensure_plan_key(client: Verbs, owner: Owner) -> str:
    """Make sure that the object has a plan key and return the name of its Secret.

    A key is made once and kept. A Secret of that name without a whole key gets one; plans that wait for an
    approval are then planned again.

    Raises:
        ApiError: reading or writing failed.
    """
    name = names.plan_key_secret(owner.kind, owner.name)
    try:
        found = client.get(SECRET, name, owner.namespace)
    except NotFound:
        try:
            client.create(SECRET, record_secret(owner, name, {KEY: _new_key()}), owner.namespace)
        except AlreadyExists:
            found = client.get(SECRET, name, owner.namespace)
        else:
            return name
    if not _whole(found):
        client.patch(
            SECRET,
            name,
            {
                "metadata": {"resourceVersion": resource_version_of(found)},
                "data": {KEY: _new_key()},
            },
            owner.namespace,
        )
    return name


def _whole(secret: Object) -> bool:
    data = secret.get("data")
    encoded = data.get(KEY) if isinstance(data, dict) else None
    if not isinstance(encoded, str):
        return False
    try:
        return len(base64.b64decode(encoded)) >= KEY_BYTES
    except binascii.Error:
        return False


def _new_key() -> str:
    return base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()
