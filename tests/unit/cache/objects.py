"""Short ways to make the objects that the cache's tests speak of."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from captf_runtime.cache import Form, StoredObject, store_raw
from captf_runtime.objects import CONFIG_MAP

FORM = Form(CONFIG_MAP)


def stored(
    name: str, version: int | str = 1, *, uid: str = "", namespace: str = "t", **labels: str
) -> StoredObject:
    """A stored object; its uid is derived from its name unless given."""
    meta: dict[str, Any] = {
        "name": name,
        "namespace": namespace,
        "uid": uid or f"uid-{name}",
        "resourceVersion": str(version),
        "labels": labels,
    }
    return store_raw(json.dumps({"metadata": meta}).encode(), FORM)


def raw(obj: dict[str, Any]) -> msgspec.Raw:
    """The JSON of an object as the view into a page that a list gives."""
    page = msgspec.json.encode({"items": [{"x": 1}, obj, {"y": 2}]})
    return msgspec.json.decode(page, type=dict[str, list[msgspec.Raw]])["items"][1]
