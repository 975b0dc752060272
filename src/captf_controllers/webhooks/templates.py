"""The rules of the three templates. Pure."""

from __future__ import annotations

import re

from captf_controllers.api.annotations import TOPOLOGY_DRY_RUN
from captf_controllers.api.kinds import Role
from captf_controllers.webhooks import policy
from captf_controllers.webhooks.policy import forbidden, invalid
from captf_runtime.objects import Object, annotations_of, is_deleting
from captf_runtime.webhook import Violation

_NAME = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)")
_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
PATH = "spec.template.spec"


def check_template(
    role: Role, new: Object, old: Object | None, *, dry_run: bool
) -> tuple[list[Violation], list[str]]:
    """Violations and warnings of a create or update of a template.

    ``spec.template.spec`` never changes, but in a ClusterClass topology dry run: a dry-run request whose object
    carries the topology annotation.
    """
    template = (new.get("spec") or {}).get("template") or {}
    spec = template.get("spec") or {}
    stored = ((old.get("spec") or {}).get("template") or {}) if old is not None else None
    found: list[Violation] = []
    if stored is None or (template != stored and not is_deleting(new)):
        found += _check_metadata(template.get("metadata") or {})
        found += policy.check_source(spec, PATH)
        found += policy.check_jobs(spec.get("jobs"), f"{PATH}.jobs")
        if role == "cluster":
            found += policy.check_jobs((spec.get("defaults") or {}).get("jobs"), f"{PATH}.defaults.jobs")
        found += policy.check_variables(spec, PATH, role)
    if role == "machine" and spec.get("providerID"):
        found.append(forbidden(f"{PATH}.providerID", "is assigned to each machine; leave it out"))
    topology = dry_run and TOPOLOGY_DRY_RUN in annotations_of(new)
    if stored is not None and spec != (stored.get("spec") or {}) and not topology:
        found.append(forbidden(PATH, "is immutable; create a new template and point to it instead"))
    warnings = []
    if role == "cluster" and not (spec.get("identityRef") or {}).get("name"):
        warnings.append("clusters made from this template are refused unless a patch sets spec.identityRef")
    return found, warnings


def _check_metadata(metadata: Object) -> list[Violation]:
    path = "spec.template.metadata"
    found = []
    for key, value in sorted((metadata.get("labels") or {}).items()):
        if not _is_key(key):
            found.append(invalid(f"{path}.labels[{key}]", "is not a valid label key"))
        if not _VALUE.fullmatch(str(value)):
            found.append(invalid(f"{path}.labels[{key}]", "does not have a valid label value"))
    for key in sorted(metadata.get("annotations") or {}):
        if not _is_key(key.lower()):
            found.append(invalid(f"{path}.annotations[{key}]", "is not a valid annotation key"))
    return found


def _is_key(key: str) -> bool:
    prefix, slash, name = key.rpartition("/")
    if slash and (len(prefix) > 253 or not _PREFIX.fullmatch(prefix)):
        return False
    return bool(_NAME.fullmatch(name))
