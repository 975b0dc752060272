"""Lease."""

from __future__ import annotations

import re

from captf_runtime.objects import Object, format_micro_time, parse_time
from captf_runtime.testing.apiserver.kinds.base import Strategy, WriteContext
from captf_runtime.testing.apiserver.status import Cause, bad_request, invalid_value

_micro_time = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6}(Z|[+-]\d\d:\d\d))?")
_LAYOUT = "2006-01-02T15:04:05.000000Z07:00"


def check_micro_time(obj: Object, field: str, kind: str, version: str) -> None:
    """Raise 400 unless the field is absent or a time with exactly six fractional digits."""
    value = obj.get(field)
    if value is None:
        obj.pop(field, None)
        return
    prefix = f'{kind} in version "{version}" cannot be handled as a {kind}'
    if not isinstance(value, str):
        raise bad_request(
            f"{prefix}: json: cannot unmarshal into Go struct field {field} of type v1.MicroTime"
        )
    found = _micro_time.match(value)
    if found is None or not found[1] or found.end() != len(value):
        rest, part = (value, "2006") if found is None else (value[19:], ".000000")
        raise bad_request(
            f'{prefix}: parsing time "{value}" as "{_LAYOUT}": cannot parse "{rest}" as "{part}"'
        )
    obj[field] = format_micro_time(parse_time(value))


class LeaseStrategy(Strategy):
    """Leases: a version is always needed to update one, and a PUT creates one that is absent."""

    unconditional_update = False
    create_on_update = True

    def decode(self, obj: Object) -> None:
        spec = obj.get("spec")
        if spec is None:
            obj["spec"] = {}
            return
        if not isinstance(spec, dict):
            raise bad_request(
                'Lease in version "v1" cannot be handled as a Lease: json: cannot unmarshal into Go struct field '
                "Lease.spec of type v1.LeaseSpec"
            )
        for field in ("acquireTime", "renewTime"):
            check_micro_time(spec, field, "Lease", "v1")
        for field in ("holderIdentity", "leaseDurationSeconds", "leaseTransitions"):
            if field in spec and spec[field] is None:
                del spec[field]
        for field in ("leaseDurationSeconds", "leaseTransitions"):
            if field in spec and (isinstance(spec[field], bool) or not isinstance(spec[field], int)):
                raise bad_request(
                    'Lease in version "v1" cannot be handled as a Lease: json: cannot unmarshal into Go struct '
                    f"field LeaseSpec.spec.{field} of type int32"
                )

    def validate(self, obj: Object, context: WriteContext) -> list[Cause]:
        spec = obj.get("spec") or {}
        causes: list[Cause] = []
        duration = spec.get("leaseDurationSeconds")
        if duration is not None and duration <= 0:
            causes.append(invalid_value("spec.leaseDurationSeconds", duration, "must be greater than 0"))
        transitions = spec.get("leaseTransitions")
        if transitions is not None and transitions < 0:
            # The older text is the real server's own slip.
            detail = "must be greater than or equal to 0"
            if context.mode == "1.20":
                detail = "must to greater or equal than 0"
            causes.append(invalid_value("spec.leaseTransitions", transitions, detail))
        return causes
