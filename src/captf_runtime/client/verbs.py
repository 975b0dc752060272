"""The verbs of the API, written once over an abstract request."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol, TypeVar, cast
from urllib.parse import quote, urlencode

import msgspec

from captf_runtime.client.errors import Gone
from captf_runtime.client.lists import ObjectList, RawPage, decode_page, fill_kind, split_page
from captf_runtime.client.protocols import JsonPatch, PatchType, PropagationPolicy
from captf_runtime.client.transport import LIST_TIMEOUT, READ_TIMEOUT, Cancellation
from captf_runtime.objects import Kind, Object, check_kind, metadata, name_of, namespace_of

PAGE_SIZE = 500

_METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_METADATA_ONLY_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

_PATCH_TYPES: dict[str, str] = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    # Apply takes YAML, of which JSON is a part.
    "apply": "application/apply-patch+yaml",
}

_JSON: Mapping[str, str] = {"Content-Type": "application/json"}

_encode = msgspec.json.Encoder().encode
_decode = cast("Callable[[bytes], Object]", msgspec.json.Decoder(dict).decode)

Query = list[tuple[str, str]]


class _Page(Protocol):
    @property
    def continue_token(self) -> str: ...


T = TypeVar("T")
P = TypeVar("P", bound=_Page)


def object_path(kind: Kind, namespace: str, name: str, subresource: str = "") -> str:
    """Return the path of one object, quoted.

    Raises:
        ValueError: name or namespace is missing or cannot be part of a path. Without this check an empty
            name would address the whole collection.
    """
    check_kind(kind)
    if not name:
        raise ValueError(f"{kind.resource}: the name of the object is empty")
    if kind.namespaced and not namespace:
        raise ValueError(f"{kind.resource} {name!r}: the namespace is empty, and the kind is namespaced")
    return kind.path(_segment(kind, namespace), _segment(kind, name), subresource)


def collection_path(kind: Kind, namespace: str = "") -> str:
    """Return the path of a collection, quoted. Raises ValueError for a namespace that is no path segment."""
    check_kind(kind)
    return kind.path(_segment(kind, namespace))


def _segment(kind: Kind, text: str) -> str:
    if text in (".", "..") or "/" in text:
        raise ValueError(f"{kind.resource}: {text!r} is not a valid name")
    return quote(text, safe="")


class Verbs(ABC):
    """Everything that can be asked of the API server.

    Flow: `get` and `list` read from the server, `create`, `update`, `patch` and `delete` change it and
    return its answer. Objects passed in are never changed.

    Timeouts: `timeout` is in seconds and bounds the whole call with its repetitions; without it each
    attempt may take 30 s (lists 60 s).

    Raises:
        ApiError: by class, see `captf_runtime.client.errors`.
        ValueError: an argument cannot be right; nothing was sent.
    """

    @abstractmethod
    def _call(
        self,
        method: str,
        target: str,
        *,
        verb: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
        attempt_timeout: float = READ_TIMEOUT,
        repeat: bool = True,
        cancellation: Cancellation | None = None,
        decode: Callable[[bytes], T],
    ) -> T:
        """Send a request, repeated where that is safe, and return its decoded answer; raise otherwise."""

    @abstractmethod
    def _monotonic(self) -> float:
        """The clock that deadlines are measured on."""

    # Reads ------------------------------------------------------------------------------------------

    def get(
        self,
        kind: Kind,
        name: str,
        namespace: str = "",
        *,
        subresource: str = "",
        metadata_only: bool = False,
        resource_version: str | None = None,
        timeout: float | None = None,
    ) -> Object:
        """Read one object. With `metadata_only` the server sends nothing but its metadata."""
        query: Query = []
        if resource_version is not None:
            query.append(("resourceVersion", resource_version))
        found = self._call(
            "GET",
            _target(object_path(kind, namespace, name, subresource), query),
            verb="get",
            headers={"Accept": _METADATA_ONLY} if metadata_only else None,
            timeout=timeout,
            decode=_decode,
        )
        return fill_kind(found, kind, metadata_only=metadata_only)

    def list(
        self,
        kind: Kind,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        limit: int = PAGE_SIZE,
        metadata_only: bool = False,
        resource_version: str | None = None,
        timeout: float | None = None,
    ) -> ObjectList:
        """Read all objects of a namespace ("" for all namespaces) that both selectors match.

        The list is consistent: all of it is of one version. It is fetched in pages of `limit` (0 for one
        request); when a page has expired meanwhile, everything is read again in one request.
        """
        found: JsonPatch = []
        version = ""
        for page in self.pages(
            kind,
            namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            limit=limit,
            metadata_only=metadata_only,
            resource_version=resource_version,
            timeout=timeout,
        ):
            if page.restarted or not version:
                found, version = page.items, page.resource_version
            else:
                found.extend(page.items)
        return ObjectList(found, version)

    def pages(
        self,
        kind: Kind,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        limit: int = PAGE_SIZE,
        metadata_only: bool = False,
        resource_version: str | None = None,
        timeout: float | None = None,
    ) -> Iterator[ObjectList]:
        """Read a list page by page, each decoded when it is asked for.

        A page with `restarted` set replaces all pages before it.
        """

        def decode(data: bytes, restarted: bool) -> ObjectList:
            return decode_page(data, kind, metadata_only=metadata_only, restarted=restarted)

        return self._pages(
            kind,
            namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            limit=limit,
            metadata_only=metadata_only,
            resource_version=resource_version,
            timeout=timeout,
            decode=decode,
        )

    def raw_pages(
        self,
        kind: Kind,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        limit: int = PAGE_SIZE,
        metadata_only: bool = False,
        resource_version: str | None = None,
        timeout: float | None = None,
        repeat: bool = True,
        cancellation: Cancellation | None = None,
    ) -> Iterator[RawPage]:
        """Read a list page by page without decoding the items.

        Args:
            repeat: False when no request should be repeated.
            cancellation: lets another thread end the requests.
        """
        return self._pages(
            kind,
            namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            limit=limit,
            metadata_only=metadata_only,
            resource_version=resource_version,
            timeout=timeout,
            repeat=repeat,
            cancellation=cancellation,
            decode=split_page,
        )

    def _pages(
        self,
        kind: Kind,
        namespace: str,
        *,
        label_selector: str,
        field_selector: str,
        limit: int,
        metadata_only: bool,
        resource_version: str | None,
        timeout: float | None,
        decode: Callable[[bytes, bool], P],
        repeat: bool = True,
        cancellation: Cancellation | None = None,
    ) -> Iterator[P]:
        path = collection_path(kind, namespace)
        selectors = _selectors(label_selector, field_selector)
        deadline = None if timeout is None else self._monotonic() + timeout

        def fetch(query: Query, *, restarted: bool = False) -> P:
            return self._call(
                "GET",
                _target(path, selectors + query),
                verb="list",
                headers={"Accept": _METADATA_ONLY_LIST} if metadata_only else None,
                timeout=None if deadline is None else max(deadline - self._monotonic(), 0.0),
                attempt_timeout=LIST_TIMEOUT,
                repeat=repeat,
                cancellation=cancellation,
                decode=lambda data: decode(data, restarted),
            )

        # Version "0" is answered from the server's cache, which knows no pages and ignores the limit in
        # ways that differ between versions.
        size: Query = [("limit", str(limit))] if limit > 0 and resource_version != "0" else []
        version: Query = [] if resource_version is None else [("resourceVersion", resource_version)]
        page = fetch(size + version)
        while True:
            token = page.continue_token
            yield page
            if not token:
                return
            del page  # its memory must be free before the next one arrives
            try:
                page = fetch([("continue", token), *size])
            except Gone:
                yield fetch([], restarted=True)
                return

    # Writes -----------------------------------------------------------------------------------------

    def create(
        self,
        kind: Kind,
        obj: Object,
        namespace: str = "",
        *,
        dry_run: bool = False,
        field_manager: str | None = None,
        field_validation: str | None = None,
        timeout: float | None = None,
    ) -> Object:
        """Create an object and return what the server stored. `metadata.resourceVersion` is left out."""
        namespace = namespace or namespace_of(obj)
        if kind.namespaced and not namespace:
            raise ValueError(
                f"{kind.resource} {name_of(obj)!r}: the namespace is empty, and the kind is namespaced"
            )
        body = _typed(kind, obj)
        if "resourceVersion" in metadata(body):
            body["metadata"] = {
                key: value for key, value in body["metadata"].items() if key != "resourceVersion"
            }
        stored = self._call(
            "POST",
            _target(
                collection_path(kind, namespace if kind.namespaced else ""),
                _write_options(dry_run, field_manager, field_validation),
            ),
            verb="create",
            body=_encode(body),
            headers=_JSON,
            timeout=timeout,
            decode=_decode,
        )
        return fill_kind(stored, kind)

    def create_subresource(
        self,
        kind: Kind,
        name: str,
        subresource: str,
        body: Object,
        namespace: str = "",
        *,
        dry_run: bool = False,
        field_manager: str | None = None,
        timeout: float | None = None,
    ) -> Object:
        """POST to a subresource, such as `token` of a ServiceAccount, and return the answer."""
        if not subresource:
            raise ValueError(f"{kind.resource} {name!r}: the subresource is empty")
        return self._call(
            "POST",
            _target(
                object_path(kind, namespace, name, subresource), _write_options(dry_run, field_manager, None)
            ),
            verb="create",
            body=_encode(body),
            headers=_JSON,
            timeout=timeout,
            decode=_decode,
        )

    def update(
        self,
        kind: Kind,
        obj: Object,
        *,
        subresource: str = "",
        dry_run: bool = False,
        field_manager: str | None = None,
        field_validation: str | None = None,
        timeout: float | None = None,
    ) -> Object:
        """Replace an object (or its subresource `status` or `finalize`) and return what the server stored.

        With a `metadata.resourceVersion` the server refuses (`Conflict`) when the object has changed since.
        """
        stored = self._call(
            "PUT",
            _target(
                object_path(kind, namespace_of(obj), name_of(obj), subresource),
                _write_options(dry_run, field_manager, field_validation),
            ),
            verb="update",
            body=_encode(_typed(kind, obj)),
            headers=_JSON,
            timeout=timeout,
            decode=_decode,
        )
        return fill_kind(stored, kind)

    def patch(
        self,
        kind: Kind,
        name: str,
        patch: Object | JsonPatch,
        namespace: str = "",
        *,
        patch_type: PatchType = "merge",
        subresource: str = "",
        field_manager: str | None = None,
        force: bool = False,
        field_validation: str | None = None,
        dry_run: bool = False,
        timeout: float | None = None,
    ) -> Object:
        """Change parts of an object and return what the server stored.

        Args:
            patch: for `merge` (RFC 7386) and `strategic` the changed part of the object; for `json` (RFC
                6902) the list of operations; for `apply` the fields that `field_manager` wants to own.
            force: for `apply` only: take fields from other managers.
        """
        if (patch_type == "json") != isinstance(patch, list):
            raise ValueError(
                f"{kind.resource} {name!r}: a json patch is a list of operations, others are objects"
            )
        if patch_type == "apply" and not field_manager:
            raise ValueError(f"{kind.resource} {name!r}: an apply needs a field_manager")
        if force and patch_type != "apply":
            raise ValueError(f"{kind.resource} {name!r}: force belongs to apply only")
        body: Object | JsonPatch = patch
        if patch_type == "apply" and isinstance(patch, dict):
            body = {**_typed(kind, patch), "metadata": {"name": name, **metadata(patch)}}
        query = _write_options(dry_run, field_manager, field_validation)
        if force:
            query.append(("force", "true"))
        stored = self._call(
            "PATCH",
            _target(object_path(kind, namespace, name, subresource), query),
            verb="patch",
            body=_encode(body),
            headers={"Content-Type": _PATCH_TYPES[patch_type]},
            timeout=timeout,
            decode=_decode,
        )
        return fill_kind(stored, kind)

    def delete(
        self,
        kind: Kind,
        name: str,
        namespace: str = "",
        *,
        propagation_policy: PropagationPolicy,
        uid: str | None = None,
        resource_version: str | None = None,
        grace_period_seconds: int | None = None,
        dry_run: bool = False,
        timeout: float | None = None,
    ) -> Object:
        """Delete an object; returns the answer: a `Status`, or the object when it waits for finalizers.

        Args:
            propagation_policy: what happens to dependents; always explicit, because the server's default
                differs between kinds.
            uid, resource_version: refuse (`Conflict`) to delete anything else.
        """
        return self._call(
            "DELETE",
            object_path(kind, namespace, name),
            verb="delete",
            body=_delete_options(propagation_policy, uid, resource_version, grace_period_seconds, dry_run),
            headers=_JSON,
            timeout=timeout,
            decode=_decode,
        )

    def delete_collection(
        self,
        kind: Kind,
        namespace: str = "",
        *,
        propagation_policy: PropagationPolicy,
        label_selector: str = "",
        field_selector: str = "",
        dry_run: bool = False,
        timeout: float | None = None,
    ) -> Object:
        """Delete all objects of a namespace that both selectors match; returns the server's answer."""
        if kind.namespaced and not namespace:
            raise ValueError(f"{kind.resource}: a collection is deleted in one namespace, and none is given")
        return self._call(
            "DELETE",
            _target(collection_path(kind, namespace), _selectors(label_selector, field_selector)),
            verb="deletecollection",
            body=_delete_options(propagation_policy, None, None, None, dry_run),
            headers=_JSON,
            timeout=timeout,
            attempt_timeout=LIST_TIMEOUT,
            decode=_decode,
        )


def _typed(kind: Kind, obj: Object) -> Object:
    """Return a shallow copy that bears the kind."""
    return {
        **obj,
        "apiVersion": obj.get("apiVersion") or kind.api_version,
        "kind": obj.get("kind") or kind.kind,
    }


def _target(path: str, query: Query) -> str:
    return f"{path}?{urlencode(query)}" if query else path


def _selectors(label_selector: str, field_selector: str) -> Query:
    query: Query = []
    if label_selector:
        query.append(("labelSelector", label_selector))
    if field_selector:
        query.append(("fieldSelector", field_selector))
    return query


def _write_options(dry_run: bool, field_manager: str | None, field_validation: str | None) -> Query:
    query: Query = []
    if dry_run:
        query.append(("dryRun", "All"))
    if field_manager:
        query.append(("fieldManager", field_manager))
    if field_validation:
        query.append(("fieldValidation", field_validation))
    return query


def _delete_options(
    propagation_policy: PropagationPolicy,
    uid: str | None,
    resource_version: str | None,
    grace_period_seconds: int | None,
    dry_run: bool,
) -> bytes:
    options: Object = {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "propagationPolicy": propagation_policy,
    }
    preconditions = {
        name: value for name, value in (("uid", uid), ("resourceVersion", resource_version)) if value
    }
    if preconditions:
        options["preconditions"] = preconditions
    if grace_period_seconds is not None:
        options["gracePeriodSeconds"] = grace_period_seconds
    if dry_run:
        options["dryRun"] = ["All"]
    return _encode(options)


def watch_target(
    kind: Kind,
    namespace: str,
    *,
    label_selector: str,
    field_selector: str,
    resource_version: str | None,
    timeout_seconds: int,
    allow_bookmarks: bool,
    send_initial_events: bool,
) -> str:
    """Return path and query of a watch."""
    query: Query = [("watch", "true"), *_selectors(label_selector, field_selector)]
    if resource_version is not None:
        query.append(("resourceVersion", resource_version))
    query.append(("timeoutSeconds", str(timeout_seconds)))
    if allow_bookmarks or send_initial_events:
        query.append(("allowWatchBookmarks", "true"))
    if send_initial_events:
        query += [("sendInitialEvents", "true"), ("resourceVersionMatch", "NotOlderThan")]
    return _target(collection_path(kind, namespace), query)


def watch_headers(metadata_only: bool) -> Mapping[str, str]:
    """Return the headers of a watch."""
    return {"Accept": _METADATA_ONLY} if metadata_only else {}
