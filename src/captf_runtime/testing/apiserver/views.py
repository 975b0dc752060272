"""How objects go over the wire: media types, single objects, lists, and the forms Table and PartialObjectMetadata."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

import msgspec

from captf_runtime.objects import Object
from captf_runtime.testing.apiserver import status, tables
from captf_runtime.testing.apiserver.resources import Resource
from captf_runtime.testing.apiserver.storage import Record

_encode = msgspec.json.Encoder().encode

Form = Literal["object", "table", "partial"]
SERVED_TYPES = ("application/json", "application/yaml", "application/vnd.kubernetes.protobuf")


@dataclass(frozen=True, slots=True)
class MediaType:
    """What the client accepted: the form, the serialisation, and for tables the apiVersion of the table."""

    form: Form = "object"
    yaml: bool = False
    version: str = "v1"
    of_list: bool = False
    """Whether the list form of PartialObjectMetadata was named."""

    @property
    def content_type(self) -> str:
        """For the response's header."""
        return "application/yaml" if self.yaml else "application/json"


PLAIN = MediaType()


def negotiate(accept: str, *, transforms: bool = True) -> MediaType:
    """Choose from an Accept header; raises 406 when nothing in it can be served.

    `transforms` allows Table and PartialObjectMetadata.
    """
    if not accept:
        return PLAIN
    for entry in accept.split(","):
        media, *parameters = [part.strip() for part in entry.split(";")]
        if media not in ("application/json", "application/yaml", "*/*", "application/*"):
            continue
        values = dict(p.split("=", 1) for p in parameters if "=" in p)
        yaml = media == "application/yaml"
        wanted = values.get("as")
        if wanted is None:
            return MediaType(yaml=yaml)
        if not transforms or values.get("g") != "meta.k8s.io" or values.get("v") not in ("v1", "v1beta1"):
            continue
        version = values["v"]
        if wanted == "Table":
            return MediaType("table", yaml, version)
        if wanted in ("PartialObjectMetadata", "PartialObjectMetadataList"):
            return MediaType("partial", yaml, version, wanted.endswith("List"))
    if any(served in accept for served in SERVED_TYPES):
        raise status.not_acceptable(SERVED_TYPES)
    raise status.ApiStatus(406, "406: Not Acceptable", "NotAcceptable", {})


def to_yaml(body: bytes) -> bytes:
    """The YAML of a JSON document."""
    import yaml

    dumped: bytes = yaml.safe_dump(msgspec.json.decode(body), encoding="utf-8", sort_keys=True, width=2**20)
    return dumped


def encode(obj: object) -> bytes:
    """JSON."""
    return _encode(obj)


def _head(kind: str, api_version: str) -> bytes:
    return _encode({"kind": kind, "apiVersion": api_version})[:-1]


class View:
    """Renders records of one resource in one form."""

    def __init__(
        self,
        resource: Resource,
        media: MediaType = PLAIN,
        *,
        include_object: str = "Metadata",
        now: Callable[[], datetime],
    ) -> None:
        self.resource = resource
        self.media = media
        if include_object not in ("", "None", "Metadata", "Object"):
            raise status.bad_request(
                f'Unable to convert to Table as requested: includeObject: Invalid value: "{include_object}": must be '
                "'Metadata', 'Object', 'None', or empty"
            )
        self._include = include_object or "Metadata"
        self._now = now
        self._prefix = _head(resource.kind, resource.api_version)
        self._partial_prefix = _head("PartialObjectMetadata", f"meta.k8s.io/{media.version}")
        self._columns_sent = False

    def content(self, record: Record) -> Object:
        """The object in this resource's version, without kind and apiVersion; read only."""
        return self.resource.strategy.view(record.object)

    def body(self, record: Record) -> bytes:
        """The object as one of a list: built-in kinds without kind and apiVersion, as the real server does."""
        stored = record.object
        converted = self.resource.strategy.view(stored)
        return record.raw if converted is stored else _encode(converted)

    def whole(self, record: Record) -> bytes:
        """The object with kind and apiVersion."""
        form = (self.resource.api_version, self.resource.strategy.serial)
        return record.view(form, lambda: self._prefix + b"," + self.body(record)[1:])

    def one(self, record: Record) -> bytes:
        """A single object in the chosen form."""
        if self.media.form == "table":
            return self._table([record], _metadata_of(record))
        if self.media.form == "partial":
            return self.partial(record)
        return self.whole(record)

    def partial(self, record: Record) -> bytes:
        """PartialObjectMetadata."""
        return self._partial_prefix + b',"metadata":' + _encode(record.object["metadata"]) + b"}"

    def event(self, record: Record) -> bytes:
        """The object inside a watch event; a Table carries its columns in the first event only."""
        if self.media.form != "table":
            return self.one(record)
        rendered = self._table([record], _metadata_of(record), columns=not self._columns_sent)
        self._columns_sent = True
        return rendered

    def bookmark(self, revision: int, annotations: Object | None = None) -> bytes:
        """The object of a BOOKMARK event."""
        metadata: Object = {"resourceVersion": str(revision), "creationTimestamp": None}
        if annotations:
            metadata["annotations"] = annotations
        if self.media.form == "partial":
            return self._partial_prefix + b',"metadata":' + _encode(metadata) + b"}"
        if self.media.form == "table":
            table = {
                "kind": "Table",
                "apiVersion": f"meta.k8s.io/{self.media.version}",
                "metadata": {"resourceVersion": str(revision)},
                "columnDefinitions": None,
                "rows": [
                    {
                        "cells": None,
                        "object": {
                            "kind": "PartialObjectMetadata",
                            "apiVersion": f"meta.k8s.io/{self.media.version}",
                            "metadata": metadata,
                        },
                    }
                ],
            }
            return _encode(table)
        return self._prefix + b',"metadata":' + _encode(metadata) + b"}"

    def many(self, records: Iterable[Record], metadata: Object) -> bytes:
        """A list in the chosen form; `metadata` is the list's."""
        listed = list(records)
        if self.media.form == "table":
            return self._table(listed, metadata)
        if self.media.form == "partial":
            head = _head("PartialObjectMetadataList", f"meta.k8s.io/{self.media.version}")
            items = b",".join(self.partial(record) for record in listed)
        else:
            kind = self.resource.list_kind or f"{self.resource.kind}List"
            head = _head(kind, self.resource.api_version)
            if self.resource.custom:
                metadata = {"continue": "", **metadata}
            render = self.whole if self.resource.custom else self.body
            items = b",".join(render(record) for record in listed)
        return head + b',"metadata":' + _encode(metadata) + b',"items":[' + items + b"]}"

    def _table(self, records: list[Record], metadata: Object, *, columns: bool = True) -> bytes:
        now = self._now()
        rows = []
        for record in records:
            content = self.content(record)
            rows.append(
                {
                    "cells": tables.cells(self.resource, content, now),
                    "object": self._row_object(record, content),
                }
            )
        table: Object = {
            "kind": "Table",
            "apiVersion": f"meta.k8s.io/{self.media.version}",
            "metadata": metadata,
            "columnDefinitions": tables.columns(self.resource) if columns else None,
            "rows": rows,
        }
        return _encode(table)

    def _row_object(self, record: Record, content: Object) -> Object | None:
        match self._include:
            case "None":
                return None
            case "Object":
                return {"kind": self.resource.kind, "apiVersion": self.resource.api_version, **content}
        return {
            "kind": "PartialObjectMetadata",
            "apiVersion": f"meta.k8s.io/{self.media.version}",
            "metadata": record.object["metadata"],
        }


def _metadata_of(record: Record) -> Object:
    return {"resourceVersion": str(record.version)}
