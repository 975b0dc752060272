"""The rules of the three templates. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from captf_controllers.api.annotations import TOPOLOGY_DRY_RUN
from captf_controllers.api.kinds import Role
from captf_controllers.webhooks import policy
from captf_controllers.webhooks.policy import forbidden, invalid
from captf_runtime.objects import Object, annotations_of, is_deleting, is_label_key, is_label_value
from captf_runtime.webhook import Violation

MAX_ANNOTATIONS_BYTES = 256 * 1024
"""What the API server takes for all annotations of an object, keys and values."""

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
    before = None if stored is None else stored.get("spec") or {}
    changed = before is None or not policy.same_json(spec, before)
    found: list[Violation] = []
    # What a template was stored with never blocks its other fields: its spec cannot be mended.
    if stored is None or (template.get("metadata") != stored.get("metadata") and not is_deleting(new)):
        found += _check_metadata(template.get("metadata") or {})
    if changed and not is_deleting(new):
        found += policy.check_source(spec, PATH)
        found += _check_policies(role, spec, before or {})
        found += policy.check_variables(spec, PATH, role)
        if role == "machine" and spec.get("providerID"):
            found.append(forbidden(f"{PATH}.providerID", "is assigned to each machine; leave it out"))
    topology = dry_run and TOPOLOGY_DRY_RUN in annotations_of(new)
    if before is not None and changed and not topology:
        found.append(forbidden(PATH, "is immutable; create a new template and point to it instead"))
    warnings = []
    if role == "cluster" and not (spec.get("identityRef") or {}).get("name"):
        warnings.append("clusters made from this template are refused unless a patch sets spec.identityRef")
    return found, warnings


def _check_policies(role: Role, spec: Object, before: Object) -> Iterator[Violation]:
    if spec.get("jobs") != before.get("jobs"):
        yield from policy.check_jobs(spec.get("jobs"), f"{PATH}.jobs")
    jobs = (spec.get("defaults") or {}).get("jobs")
    if role == "cluster" and jobs != (before.get("defaults") or {}).get("jobs"):
        yield from policy.check_jobs(jobs, f"{PATH}.defaults.jobs")


def _check_metadata(metadata: Object) -> Iterator[Violation]:
    path = "spec.template.metadata"
    for key, value in sorted((metadata.get("labels") or {}).items()):
        if not is_label_key(key):
            yield invalid(f"{path}.labels[{key}]", "is not a valid label key")
        if not is_label_value(str(value)):
            yield invalid(f"{path}.labels[{key}]", "does not have a valid label value")
    annotations = metadata.get("annotations") or {}
    for key in sorted(annotations):
        if not is_label_key(key.lower()):
            yield invalid(f"{path}.annotations[{key}]", "is not a valid annotation key")
    if sum(len(text.encode()) for pair in annotations.items() for text in pair) > MAX_ANNOTATIONS_BYTES:
        yield invalid(f"{path}.annotations", f"must have at most {MAX_ANNOTATIONS_BYTES} bytes in all")
