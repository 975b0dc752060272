"""What the server serves: resources by group, version and plural name."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime

from captf_runtime.objects import Object
from captf_runtime.testing.apiserver.kinds.base import Strategy
from captf_runtime.testing.apiserver.status import qualified

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True, slots=True)
class Subresource:
    """An extra endpoint below an object; `kind`, `group` and `version` are those of its body in discovery."""

    name: str
    verbs: tuple[str, ...]
    kind: str = ""
    group: str = ""
    version: str = ""


STATUS = Subresource("status", ("get", "patch", "update"))


@dataclass(frozen=True, slots=True)
class Column:
    """One column; `priority` over 0 is shown by `-o wide` only."""

    name: str
    type: str
    cell: Callable[[Object, datetime], object]
    format: str = ""
    priority: int = 0
    description: str = ""

    def definition(self) -> Object:
        """As it stands in columnDefinitions."""
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format,
            "description": self.description,
            "priority": self.priority,
        }


@dataclass(frozen=True, slots=True, eq=False)
class Resource:
    """One resource in one version. `table` names its storage, shared by all versions (and by both event groups)."""

    group: str
    version: str
    plural: str
    kind: str
    strategy: Strategy
    namespaced: bool = True
    singular: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    subresources: tuple[Subresource, ...] = ()
    table: str = ""
    list_kind: str = ""
    custom: bool = False
    columns: tuple[Column, ...] = ()
    virtual: bool = False
    """Virtual resources (reviews) are answered and never stored."""
    returns_deleted: bool = False
    """Whether a delete answers with the object even when that is gone."""

    @property
    def api_version(self) -> str:
        """`v1` or `group/version`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """`secrets` or `jobs.batch`."""
        return qualified(self.plural, self.group)

    @property
    def error_group(self) -> str:
        """The group that validation errors name: both kinds of events are one kind inside, of the core group."""
        return "" if self.table == "events" else self.group

    @property
    def storage(self) -> str:
        """The table that holds its objects."""
        return self.table or self.qualified

    @property
    def has_status(self) -> bool:
        """Whether status is a subresource."""
        return self.subresource("status") is not None

    def subresource(self, name: str) -> Subresource | None:
        """The subresource of that name."""
        for candidate in self.subresources:
            if candidate.name == name:
                return candidate
        return None


class Registry:
    """The served resources. Reads take no lock: every change replaces the tables as a whole."""

    def __init__(self, resources: Iterable[Resource] = ()) -> None:
        self._lock = threading.Lock()
        self._resources: dict[tuple[str, str, str], Resource] = {}
        self._groups: dict[str, tuple[str, ...]] = {}
        self.generation = 0
        for resource in resources:
            self._resources[resource.group, resource.version, resource.plural] = resource
        self._regroup()

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        """The resource, or None."""
        return self._resources.get((group, version, plural))

    def of_kind(self, group: str, version: str, kind: str) -> Resource | None:
        """The resource whose objects have that kind."""
        for resource in self._resources.values():
            if (resource.group, resource.version, resource.kind) == (group, version, kind):
                return resource
        return None

    def groups(self) -> dict[str, tuple[str, ...]]:
        """Groups with their versions, the preferred one first; the core group is ""."""
        return self._groups

    def is_built_in(self, group: str) -> bool:
        """Whether the group has resources of its own, not only custom ones."""
        return any(r.group == group and not r.custom for r in self._resources.values())

    def of_version(self, group: str, version: str) -> list[Resource]:
        """The resources of one group and version, by plural name."""
        found = [r for r in self._resources.values() if (r.group, r.version) == (group, version)]
        return sorted(found, key=lambda resource: resource.plural)

    def virtual(self) -> list[Resource]:
        """The resources that are answered and never stored."""
        return [resource for resource in self._resources.values() if resource.virtual]

    def versions_of(self, table: str) -> list[Resource]:
        """Every served version of what the table holds."""
        return [resource for resource in self._resources.values() if resource.storage == table]

    def stored(self) -> list[Resource]:
        """One resource for each table, in its preferred version."""
        found: dict[str, Resource] = {}
        for resource in self._resources.values():
            if resource.virtual:
                continue
            present = found.get(resource.storage)
            if present is None or _rank(resource.version) < _rank(present.version):
                found[resource.storage] = resource
        return list(found.values())

    def of_table(self, table: str) -> Resource | None:
        """A resource stored in that table."""
        for resource in self.stored():
            if resource.storage == table:
                return resource
        return None

    def replace(self, table: str, resources: Iterable[Resource]) -> None:
        """Serve exactly `resources` for the table (none: stop serving it)."""
        with self._lock:
            kept = {key: r for key, r in self._resources.items() if r.storage != table}
            for resource in resources:
                kept[resource.group, resource.version, resource.plural] = resource
            self._resources = kept
            self._regroup()
            self.generation += 1

    def _regroup(self) -> None:
        groups: dict[str, set[str]] = {}
        for group, version, _ in self._resources:
            groups.setdefault(group, set()).add(version)
        self._groups = {group: tuple(sorted(found, key=_rank)) for group, found in sorted(groups.items())}


def _rank(version: str) -> tuple[int, int, int, str]:
    """Sort key that puts v2 before v1 before v1beta2 before v1alpha1 before anything else."""
    found = re.fullmatch(r"v(\d+)(?:(alpha|beta)(\d+))?", version)
    if found is None:
        return (3, 0, 0, version)
    stage = {None: 0, "beta": 1, "alpha": 2}[found[2]]
    return (stage, -int(found[1]), -int(found[3] or 0), version)
