"""Columns and cells of `Table` answers: what `kubectl get` prints."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from captf_runtime.objects import Object, parse_time
from captf_runtime.testing.apiserver.resources import Column, Resource

_NAME = "Name must be unique within a namespace."
_AGE = "CreationTimestamp is a timestamp representing the server time when this object was created."


def duration(seconds: float) -> str:
    """A duration for people, as kubectl shows ages: 5s, 3m20s, 4h, 2d3h, 3y10d."""
    total = int(seconds)
    if total < -1:
        return "<invalid>"
    if total < 0:
        return "0s"
    minutes, hours, days = total // 60, total // 3600, total // 86_400
    if total < 120:
        return f"{total}s"
    if minutes < 10:
        rest = total % 60
        return f"{minutes}m{rest}s" if rest else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        rest = minutes % 60
        return f"{hours}h{rest}m" if rest else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        rest = hours % 24
        return f"{days}d{rest}h" if rest else f"{days}d"
    if days < 730:
        return f"{days}d"
    if days < 8 * 365:
        rest = days % 365
        return f"{days // 365}y{rest}d" if rest else f"{days // 365}y"
    return f"{days // 365}y"


def since(text: object, now: datetime) -> str:
    """The age of a timestamp, `<unknown>` without one."""
    if not isinstance(text, str) or not text:
        return "<unknown>"
    return duration((now - parse_time(text).astimezone(UTC)).total_seconds())


def _name(obj: Object, _: datetime) -> object:
    return obj["metadata"].get("name", "")


def _age(obj: Object, now: datetime) -> object:
    return since(obj["metadata"].get("creationTimestamp"), now)


def _created(obj: Object, _: datetime) -> object:
    return obj["metadata"].get("creationTimestamp", "")


NAME = Column("Name", "string", _name, "name", description=_NAME)
AGE = Column("Age", "string", _age, description=_AGE)
CUSTOM_AGE = Column("Age", "date", _age, description=_AGE)
CREATED = Column("Created At", "date", _created, description=_AGE)


def _count(field: str) -> Callable[[Object, datetime], object]:
    return lambda obj, _: len(obj.get(field) or ())


def _text(*path: str, default: str = "") -> Callable[[Object, datetime], object]:
    def read(obj: Object, _: datetime) -> object:
        found: object = obj
        for part in path:
            found = found.get(part) if isinstance(found, dict) else None
        return default if found is None or found == "" else found

    return read


def _containers(obj: Object) -> list[Object]:
    template = (obj.get("spec") or {}).get("template") or {}
    return list((template.get("spec") or {}).get("containers") or [])


def _join(field: str) -> Callable[[Object, datetime], object]:
    return lambda obj, _: ",".join(str(container.get(field, "")) for container in _containers(obj))


def _selector(obj: Object, _: datetime) -> object:
    selector = (obj.get("spec") or {}).get("selector") or {}
    pairs = [f"{key}={value}" for key, value in sorted((selector.get("matchLabels") or {}).items())]
    return ",".join(pairs) or "<none>"


def _completions(obj: Object, _: datetime) -> object:
    spec, state = obj.get("spec") or {}, obj.get("status") or {}
    done = state.get("succeeded") or 0
    wanted = spec.get("completions")
    if wanted is not None:
        return f"{done}/{wanted}"
    parallelism = spec.get("parallelism") or 0
    return f"{done}/1 of {parallelism}" if parallelism > 1 else f"{done}/1"


def _job_duration(obj: Object, now: datetime) -> object:
    state = obj.get("status") or {}
    start = state.get("startTime")
    if not start:
        return ""
    end = state.get("completionTime")
    return duration(((parse_time(end) if end else now) - parse_time(start)).total_seconds())


def _pod_ready(obj: Object, _: datetime) -> object:
    total = len((obj.get("spec") or {}).get("containers") or [])
    statuses = (obj.get("status") or {}).get("containerStatuses") or []
    ready = sum(1 for s in statuses if s.get("ready") and (s.get("state") or {}).get("running") is not None)
    return f"{ready}/{total}"


def _signal_or_code(ended: Object) -> str:
    signal = ended.get("signal")
    return f"Signal:{signal}" if signal else f"ExitCode:{ended.get('exitCode', 0)}"


def _pod_status(obj: Object, _: datetime) -> object:
    state = obj.get("status") or {}
    reason = state.get("reason") or state.get("phase") or "Pending"
    initializing = False
    init = (obj.get("spec") or {}).get("initContainers") or []
    for index, container in enumerate(state.get("initContainerStatuses") or []):
        now = container.get("state") or {}
        ended, waiting = now.get("terminated"), now.get("waiting")
        if ended is not None and ended.get("exitCode", 0) == 0:
            continue
        if ended is not None:
            reason = "Init:" + (ended.get("reason") or _signal_or_code(ended))
        elif waiting and waiting.get("reason") and waiting["reason"] != "PodInitializing":
            reason = "Init:" + waiting["reason"]
        else:
            reason = f"Init:{index}/{len(init)}"
        initializing = True
        break
    if not initializing:
        running = False
        for container in reversed(state.get("containerStatuses") or []):
            now = container.get("state") or {}
            ended, waiting = now.get("terminated"), now.get("waiting")
            if waiting and waiting.get("reason"):
                reason = waiting["reason"]
            elif ended is not None:
                reason = ended.get("reason") or _signal_or_code(ended)
            elif container.get("ready") and now.get("running") is not None:
                running = True
        if reason == "Completed" and running:
            reason = "Running"
    if obj["metadata"].get("deletionTimestamp"):
        reason = "Unknown" if state.get("reason") == "NodeLost" else "Terminating"
    return reason


def _restarts(obj: Object, _: datetime) -> object:
    statuses = (obj.get("status") or {}).get("containerStatuses") or []
    return sum(int(s.get("restartCount") or 0) for s in statuses)


def _role(obj: Object, _: datetime) -> object:
    reference = obj.get("roleRef") or {}
    return f"{reference.get('kind', '')}/{reference.get('name', '')}"


def _subjects(kind: str) -> Callable[[Object, datetime], object]:
    def read(obj: Object, _: datetime) -> object:
        found = [s for s in obj.get("subjects") or [] if s.get("kind") == kind]
        if kind == "ServiceAccount":
            return ", ".join(f"{s.get('namespace', '')}/{s.get('name', '')}" for s in found)
        return ", ".join(str(s.get("name", "")) for s in found)

    return read


def _event_age(first: bool) -> Callable[[Object, datetime], object]:
    def read(obj: Object, now: datetime) -> object:
        series = obj.get("series") or {}
        begun = obj.get("firstTimestamp") or obj.get("deprecatedFirstTimestamp") or obj.get("eventTime")
        if first:
            return since(begun, now)
        last = (
            series.get("lastObservedTime") or obj.get("lastTimestamp") or obj.get("deprecatedLastTimestamp")
        )
        return since(last or begun, now)

    return read


def _event_object(obj: Object, _: datetime) -> object:
    reference = obj.get("involvedObject") or obj.get("regarding") or {}
    kind = str(reference.get("kind", "")).lower()
    name = str(reference.get("name", ""))
    return f"{kind}/{name}" if name else kind


def _event_source(obj: Object, _: datetime) -> object:
    source = obj.get("source") or obj.get("deprecatedSource") or {}
    parts = [source.get("component") or obj.get("reportingComponent") or obj.get("reportingController")]
    parts.append(source.get("host") or obj.get("reportingInstance"))
    return ", ".join(str(part) for part in parts if part)


def _event_count(obj: Object, _: datetime) -> object:
    series = obj.get("series") or {}
    return str(series.get("count") or obj.get("count") or obj.get("deprecatedCount") or 1)


def _event_note(obj: Object, _: datetime) -> object:
    return str(obj.get("message") or obj.get("note") or "").strip()


def _deployment_ready(obj: Object, _: datetime) -> object:
    wanted = (obj.get("spec") or {}).get("replicas", 1)
    return f"{(obj.get('status') or {}).get('readyReplicas') or 0}/{wanted}"


def _status_number(field: str) -> Callable[[Object, datetime], object]:
    return lambda obj, _: (obj.get("status") or {}).get(field) or 0


_TEMPLATE = (
    Column(
        "Containers",
        "string",
        _join("name"),
        priority=1,
        description="Names of each container in the template.",
    ),
    Column(
        "Images",
        "string",
        _join("image"),
        priority=1,
        description="Images referenced by each container in the template.",
    ),
    Column("Selector", "string", _selector, priority=1, description="A label query over pods."),
)
_BINDING = (
    Column("Role", "string", _role, description="The role that the binding grants."),
    AGE,
    Column("Users", "string", _subjects("User"), priority=1, description="Users in the binding."),
    Column("Groups", "string", _subjects("Group"), priority=1, description="Groups in the binding."),
    Column(
        "ServiceAccounts",
        "string",
        _subjects("ServiceAccount"),
        priority=1,
        description="ServiceAccounts in the binding.",
    ),
)

_BUILT_IN: dict[str, tuple[Column, ...]] = {
    "secrets": (
        NAME,
        Column(
            "Type", "string", _text("type"), description="Facilitates programmatic handling of secret data."
        ),
        Column("Data", "string", _count("data"), description="The number of keys."),
        AGE,
    ),
    "configmaps": (
        NAME,
        Column(
            "Data",
            "string",
            lambda obj, _: len(obj.get("data") or ()) + len(obj.get("binaryData") or ()),
            description="The number of keys.",
        ),
        AGE,
    ),
    "namespaces": (
        NAME,
        Column("Status", "string", _text("status", "phase"), description="The status of the namespace"),
        AGE,
    ),
    "serviceaccounts": (
        NAME,
        Column("Secrets", "string", _count("secrets"), description="Secrets allowed to be used by its pods."),
        AGE,
    ),
    "leases.coordination.k8s.io": (
        NAME,
        Column(
            "Holder", "string", _text("spec", "holderIdentity"), description="The identity of the holder."
        ),
        AGE,
    ),
    "pods": (
        NAME,
        Column("Ready", "string", _pod_ready, description="The containers of this pod that are ready."),
        Column("Status", "string", _pod_status, description="The aggregate status of the containers."),
        Column("Restarts", "integer", _restarts, description="How often containers have been restarted."),
        AGE,
        Column(
            "IP",
            "string",
            _text("status", "podIP", default="<none>"),
            priority=1,
            description="The pod's address.",
        ),
        Column(
            "Node", "string", _text("spec", "nodeName", default="<none>"), priority=1, description="Its node."
        ),
        Column(
            "Nominated Node",
            "string",
            _text("status", "nominatedNodeName", default="<none>"),
            priority=1,
            description="Set when this pod preempts others.",
        ),
        Column(
            "Readiness Gates",
            "string",
            lambda obj, _: "<none>",
            priority=1,
            description="Evaluated for readiness.",
        ),
    ),
    "jobs.batch": (
        NAME,
        Column(
            "Completions",
            "string",
            _completions,
            description="The number of pods which reached phase Succeeded.",
        ),
        Column("Duration", "string", _job_duration, description="Time required to complete the job."),
        AGE,
        *_TEMPLATE,
    ),
    "deployments.apps": (
        NAME,
        Column("Ready", "string", _deployment_ready, description="Number of the pod with ready state"),
        Column(
            "Up-to-date",
            "string",
            _status_number("updatedReplicas"),
            description="Pods of the present template.",
        ),
        Column(
            "Available", "string", _status_number("availableReplicas"), description="Pods that are available."
        ),
        AGE,
        *_TEMPLATE,
    ),
    "roles.rbac.authorization.k8s.io": (NAME, CREATED),
    "clusterroles.rbac.authorization.k8s.io": (NAME, CREATED),
    "rolebindings.rbac.authorization.k8s.io": (NAME, *_BINDING),
    "clusterrolebindings.rbac.authorization.k8s.io": (NAME, *_BINDING),
    "customresourcedefinitions.apiextensions.k8s.io": (NAME, CREATED),
    "validatingwebhookconfigurations.admissionregistration.k8s.io": (
        NAME,
        Column(
            "Webhooks",
            "integer",
            _count("webhooks"),
            description="The number of webhooks registered in this object.",
        ),
        AGE,
    ),
    "events": (
        Column(
            "Last Seen", "string", _event_age(False), description="The most recent occurrence of this event."
        ),
        Column("Type", "string", _text("type"), description="Type of this event (Normal, Warning)."),
        Column("Reason", "string", _text("reason"), description="A short, machine understandable reason."),
        Column("Object", "string", _event_object, description="The object that this event is about."),
        Column(
            "Subobject",
            "string",
            lambda obj, _: str(
                (obj.get("involvedObject") or obj.get("regarding") or {}).get("fieldPath", "")
            ),
            priority=1,
            description="A piece of the object.",
        ),
        Column(
            "Source", "string", _event_source, priority=1, description="The component reporting this event."
        ),
        Column("Message", "string", _event_note, description="A description of what happened."),
        Column(
            "First Seen", "string", _event_age(True), priority=1, description="When it was first recorded."
        ),
        Column("Count", "string", _event_count, priority=1, description="How often it has occurred."),
        Column("Name", "string", _name, "name", 1, _NAME),
    ),
}
_DEFAULT = (NAME, CREATED)


def built_in_columns(storage: str) -> tuple[Column, ...]:
    """The columns of a built-in resource, by its table."""
    return _BUILT_IN.get(storage, _DEFAULT)


def _columns_of(resource: Resource) -> tuple[Column, ...]:
    return resource.columns or built_in_columns(resource.storage)


def columns(resource: Resource) -> list[Object]:
    """columnDefinitions of a resource."""
    return [column.definition() for column in _columns_of(resource)]


def cells(resource: Resource, obj: Object, now: datetime) -> list[object]:
    """The cells of one row."""
    return [column.cell(obj, now) for column in _columns_of(resource)]
