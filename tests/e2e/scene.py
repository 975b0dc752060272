"""A user, and Cluster API's part, in a namespace of a stage; with a cloud of their own to look at.

machine = scene.machine("m1")
machine.wait_ready()
machine.delete()
machine.wait_says("StateReadable", "False/StateLost")
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

from hack.tour import manifests
from hack.tour.inventory import leftovers
from hack.tour.stage import Stage
from hack.tour.story import condition, provisioned
from hack.tour.waiting import TimedOut, wait_until
from tests.e2e.cloud import Cloud

from captf_controllers.api import annotations as keys
from captf_controllers.api import labels, names
from captf_controllers.api.kinds import (
    CLUSTER,
    MACHINE,
    TERRAFORM_CLUSTER,
    TERRAFORM_CLUSTER_IDENTITY,
    TERRAFORM_MACHINE,
    WORKLOAD_KINDS,
)
from captf_controllers.jobs.views import JobView, view_job
from captf_runtime.client.errors import AlreadyExists, Conflict, NotFound
from captf_runtime.objects import (
    EVENTS_V1,
    JOB,
    NAMESPACE,
    POD,
    SECRET,
    Kind,
    Object,
    annotations_of,
    format_time,
    labels_of,
    name_of,
    parse_time,
    uid_of,
)

#: A real runtime on a busy machine takes its time, and waits end when they may.
PATIENCE = 300.0
CLOUD_CLUSTER = "example.com/tests/cloud-cluster:v1"
CLOUD_MACHINE = "example.com/tests/cloud-machine:v1"


class Scene:
    """A namespace with a Cluster called like it, the operator's credentials and an identity.

    Args:
        stage: where CAPTF runs.
        namespace: made by `prepare`, removed by `clear`.
        cloud: what the modules build in.
    """

    def __init__(self, stage: Stage, namespace: str, cloud: Cloud) -> None:
        self.stage = stage
        self.client = stage.client
        self.namespace = namespace
        self.cloud = cloud

    # Making things

    def prepare(self, token: str = "not-a-real-token") -> None:
        """Namespaces, credentials and identity."""
        for name in (manifests.OPERATOR, self.namespace):
            self.ensure(NAMESPACE, manifests.namespace(name))
        self.ensure(SECRET, manifests.secret("cloud-credentials", manifests.OPERATOR, {"DEMO_TOKEN": token}))
        self.ensure(TERRAFORM_CLUSTER_IDENTITY, manifests.identity())

    def ensure(self, kind: Kind, obj: Object) -> Object:
        namespace = obj["metadata"].get("namespace", "")
        try:
            return self.client.create(kind, obj, namespace)
        except AlreadyExists:
            return self.client.get(kind, name_of(obj), namespace)

    def cluster(
        self,
        *,
        image: str = CLOUD_CLUSTER,
        variables: Mapping[str, Any] | None = None,
        annotations: Mapping[str, str] | None = None,
        **spec: Any,
    ) -> Subject:
        """The Cluster and its TerraformCluster."""
        owner = self.ensure(CLUSTER, manifests.cluster(namespace=self.namespace))
        obj = manifests.terraform_cluster(
            owner, namespace=self.namespace, **self._spec(image, variables, CLOUD_CLUSTER), **spec
        )
        obj["metadata"]["annotations"] = dict(annotations or {})
        self.client.create(TERRAFORM_CLUSTER, obj, self.namespace)
        return Subject(self, TERRAFORM_CLUSTER, manifests.CLUSTER_NAME)

    def machine(
        self,
        name: str,
        *,
        image: str = CLOUD_MACHINE,
        variables: Mapping[str, Any] | None = None,
        bootstrap: str = "#cloud-config\n{}\n",
        **spec: Any,
    ) -> Subject:
        """A Machine with its bootstrap data and its TerraformMachine."""
        self.ensure(SECRET, manifests.secret(f"{name}-bootstrap", self.namespace, {"value": bootstrap}))
        owner = self.ensure(MACHINE, manifests.machine(name, namespace=self.namespace))
        obj = manifests.terraform_machine(
            owner, namespace=self.namespace, **self._spec(image, variables, CLOUD_MACHINE), **spec
        )
        self.client.create(TERRAFORM_MACHINE, obj, self.namespace)
        return Subject(self, TERRAFORM_MACHINE, name)

    def _spec(self, image: str, variables: Mapping[str, Any] | None, cloudy: str) -> dict[str, Any]:
        given = dict(variables or {})
        if image == cloudy:
            given = {"cloud": str(self.cloud.folder), **given}
        return {"source": {"image": image}, **({"variables": given} if given else {})}

    def report_infrastructure(self) -> None:
        """What Cluster API's controller does once the cluster's infrastructure is provisioned."""
        status = {"initialization": {"infrastructureProvisioned": True}}
        self.client.patch(
            CLUSTER, manifests.CLUSTER_NAME, {"status": status}, self.namespace, subresource="status"
        )

    def kill_pods(self, job: str) -> None:
        """SIGKILL to every process of a Job's pods, as when a node runs out of memory."""
        for pod in self.pods(job):
            for process in processes_of(name_of(pod)):
                try:
                    os.kill(process, signal.SIGKILL)
                except ProcessLookupError:
                    continue

    # Looking at things

    def wait(
        self, check: Callable[[], Any], what: str, *, seconds: float = PATIENCE, every: float = 0.1
    ) -> Any:
        """The first true answer; when none comes, what there is goes into the failure."""

        def asked() -> Any:
            self.stage.check_manager()
            return check()

        try:
            return wait_until(asked, what, seconds=seconds, every=every)
        except TimedOut as error:
            raise AssertionError(f"{error}\n{self.describe()}") from None

    def jobs(self, name: str = "", op: str = "") -> list[JobView]:
        """The Jobs that there are, of one object and operation if named, oldest first."""
        views = [view_job(job) for job in self.client.list(JOB, self.namespace).items]
        found = [
            view for view in views if (not name or view.owner_name == name) and (not op or view.op == op)
        ]
        return sorted(found, key=lambda view: (view.created, view.attempt or 0))

    def pods(self, job: str) -> list[Object]:
        return self.client.list(POD, self.namespace, label_selector=f"job-name={job}").items

    def arguments_of(self, job: str) -> list[str]:
        """What the runner of a Job was told."""
        template = self.client.get(JOB, job, self.namespace)["spec"]["template"]["spec"]
        arguments: list[str] = template["containers"][0].get("args") or []
        return [*(template["containers"][0].get("command") or []), *arguments]

    def log_of(self, job: str) -> str:
        """What the runner of a Job printed."""
        texts = []
        for pod in self.pods(job):
            pieces = self.stage.kubelet.log(self.namespace, name_of(pod), "source")
            texts.append(b"".join(pieces or ()).decode(errors="replace"))
        return "".join(texts)

    def events(self, name: str = "", reason: str = "") -> list[Object]:
        """Events about one object and of one reason if named, oldest first."""
        found = [
            event
            for event in self.client.list(EVENTS_V1, self.namespace).items
            if (not name or (event.get("regarding") or {}).get("name") == name)
            and (not reason or event.get("reason") == reason)
        ]
        return sorted(found, key=lambda event: event.get("eventTime") or "")

    def wait_event(self, name: str, reason: str) -> str:
        """The note of the one event of that reason."""
        found = self.wait(lambda: self.events(name, reason), f"event {reason} of {name}")
        assert len(found) == 1, [event.get("note") for event in found]
        return str(found[0].get("note"))

    def wait_clean(self) -> None:
        """Until nothing of CAPTF is left in the namespace."""
        self.wait(lambda: not leftovers(self.client, self.namespace), "nothing of CAPTF is left")

    def describe(self) -> str:
        """The objects' conditions, Jobs with the ends of their logs, events, the end of the manager's log."""
        lines = []
        for kind in WORKLOAD_KINDS:
            for obj in self.client.list(kind, self.namespace).items:
                lines.append(f"{kind.kind} {name_of(obj)} {annotations_of(obj)}")
                for item in (obj.get("status") or {}).get("conditions") or []:
                    said = f"{item['type']}={item['status']}/{item['reason']}"
                    lines.append(f"  {said} {item.get('message', '')}")
        for view in self.jobs():
            lines.append(f"Job {view.name} {view.phase}")
            lines += [f"  {line}" for line in self.log_of(view.name).splitlines()[-15:]]
        for event in self.events():
            lines.append(f"Event {event['regarding'].get('name')} {event['reason']}: {event.get('note')}")
        lines += self.stage.manager_log().splitlines()[-30:]
        return "\n".join(lines)

    def clear(self) -> None:
        """Remove the namespace, whatever a failed test left in it."""
        for kind in WORKLOAD_KINDS:
            for obj in self.client.list(kind, self.namespace).items:
                try:
                    self.client.patch(kind, name_of(obj), {"metadata": {"finalizers": None}}, self.namespace)
                except NotFound:
                    continue
        try:
            self.client.delete(NAMESPACE, self.namespace, propagation_policy="Background")
        except NotFound:
            return
        except Conflict:
            return  # it goes already


def processes_of(pod: str) -> list[int]:
    """The processes of a local pod, which all know its name, the runner's before those that it started."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                environment = (entry / "environ").read_bytes()
            except OSError:
                continue  # ended meanwhile, or of another user
            if f"HOSTNAME={pod}".encode() in environment.split(b"\0"):
                found.append(int(entry.name))
    return sorted(found)


@dataclass(frozen=True)
class Subject:
    """A workload object of a scene."""

    scene: Scene
    kind: Kind
    name: str

    @property
    def suffix(self) -> str:
        return names.state_suffix(self.scene.namespace, self.kind.kind, self.name)

    @property
    def object(self) -> Object:
        return self.scene.client.get(self.kind, self.name, self.scene.namespace)

    @property
    def uid(self) -> str:
        return uid_of(self.object)

    @property
    def status(self) -> Object:
        status: Object = self.object.get("status") or {}
        return status

    def condition(self, type_: str) -> Object:
        return condition(self.object, type_)

    def jobs(self, op: str = "") -> list[JobView]:
        """The Jobs of this very object, of one operation if named, oldest first.

        Those of an earlier one of its name go when the garbage collector gets to them.
        """
        uid = self.uid
        return [view for view in self.scene.jobs(self.name, op) if view.owner_uid == uid]

    # What a user does

    def patch(self, patch: Object) -> None:
        self.scene.client.patch(self.kind, self.name, patch, self.scene.namespace)

    def annotate(self, key: str, value: str | None) -> None:
        self.patch({"metadata": {"annotations": {key: value}}})

    def set_variables(self, **variables: Any) -> None:
        """Change some of the variables."""
        self.patch({"spec": {"variables": variables}})

    def abandon(self) -> None:
        self.annotate(keys.ABANDON_INFRASTRUCTURE, self.uid)

    def restore(self, serial: int) -> None:
        self.annotate(keys.RESTORE_STATE, str(serial))

    def delete(self) -> None:
        self.scene.client.delete(self.kind, self.name, self.scene.namespace, propagation_policy="Background")

    def let_pass(self, seconds: float) -> None:
        """Make its finished Jobs have finished so much earlier: the time that a test would wait has passed."""
        client, namespace = self.scene.client, self.scene.namespace
        for view in self.jobs():
            obj = client.get(JOB, view.name, namespace)
            conditions = (obj.get("status") or {}).get("conditions") or []
            if not view.is_finished or not conditions:
                continue
            for item in conditions:
                moved = parse_time(item["lastTransitionTime"]) - timedelta(seconds=seconds)
                item["lastTransitionTime"] = format_time(moved)
            patch = {"status": {"conditions": conditions}}
            client.patch(JOB, view.name, patch, namespace, subresource="status")

    def touch(self) -> None:
        """Make the manager look at it."""
        self.annotate("tests.example.com/touched", uuid4().hex)

    # What a user sees

    def wait(self, check: Callable[[Object], Any], what: str, *, every: float = 0.1) -> Any:
        return self.scene.wait(
            lambda: check(self.object), f"{self.kind.kind} {self.name}: {what}", every=every
        )

    def wait_says(self, type_: str, said: str, *, beyond: str = "") -> Object:
        """Until a condition is `<status>/<reason>`; the condition.

        Args:
            beyond: the message may not be this one any more.
        """

        def check(obj: Object) -> Object | None:
            found = condition(obj, type_)
            same = f"{found.get('status')}/{found.get('reason')}" == said
            return found if same and (not beyond or found.get("message") != beyond) else None

        found: Object = self.wait(check, f"{type_}={said}")
        return found

    def wait_message(self, type_: str, part: str) -> str:
        """Until a condition's message holds a text; the message."""

        def check(obj: Object) -> str:
            message = str(condition(obj, type_).get("message", ""))
            return message if part in message else ""

        return str(self.wait(check, f"{type_} says: {part}"))

    def wait_ready(self) -> Object:
        """Until it is provisioned and Ready for its present generation."""

        def ready(obj: Object) -> Object | None:
            found = condition(obj, "Ready")
            done = found.get("status") == "True" and provisioned(obj)
            return obj if done and found.get("observedGeneration") == obj["metadata"]["generation"] else None

        obj: Object = self.wait(ready, "is provisioned and Ready")
        return obj

    def wait_seen(self) -> None:
        """Until the manager has made a pass over what its spec says now."""

        def seen(obj: Object) -> bool:
            return condition(obj, "Ready").get("observedGeneration") == obj["metadata"]["generation"]

        self.wait(seen, "its spec is seen")

    def wait_applied(self) -> None:
        """Until what its spec says now is applied."""

        def applied(obj: Object) -> bool:
            found = condition(obj, "InputsApplied")
            present = found.get("observedGeneration") == obj["metadata"]["generation"]
            return present and found.get("status") == "True"

        self.wait(applied, "has applied its spec")

    def wait_gone(self) -> None:
        def gone() -> bool:
            try:
                self.scene.client.get(self.kind, self.name, self.scene.namespace, metadata_only=True)
            except NotFound:
                return True
            return False

        self.scene.wait(gone, f"{self.kind.kind} {self.name} is gone")

    def wait_job(self, op: str, count: int = 1, *, finished: bool = False, every: float = 0.05) -> JobView:
        """Until there are so many Jobs of an operation, finished or not; the newest."""

        def check() -> JobView | None:
            found = [view for view in self.jobs(op) if view.is_finished or not finished]
            return found[-1] if len(found) >= count else None

        view: JobView = self.scene.wait(check, f"{op} Job {count} of {self.name}", every=every)
        return view

    def wait_event(self, reason: str) -> str:
        return self.scene.wait_event(self.name, reason)

    # What is stored

    def state_secrets(self) -> list[Object]:
        selector = f"{labels.TFSTATE_SECRET_SUFFIX}={self.suffix}"
        return self.scene.client.list(SECRET, self.scene.namespace, label_selector=selector).items

    def backups(self) -> dict[int, list[Object]]:
        """The chunks of the backups, by serial."""
        selector = f"{labels.STATE_BACKUP_SUFFIX}={self.suffix}"
        found: dict[int, list[Object]] = {}
        for secret in self.scene.client.list(SECRET, self.scene.namespace, label_selector=selector).items:
            found.setdefault(int(annotations_of(secret)[keys.STATE_BACKUP_SERIAL]), []).append(secret)
        return found

    def belongings(self) -> list[Object]:
        """State, backups and inputs: what Retain keeps."""
        namespace = self.scene.namespace
        own = {
            names.durable_inputs_secret(self.kind.kind, self.name),
            names.applied_inputs_secret(self.kind.kind, self.name),
        }
        return [
            secret
            for secret in self.scene.client.list(SECRET, namespace).items
            if self.suffix in labels_of(secret).values() or name_of(secret) in own
        ]

    def delete_state(self) -> None:
        """What a careless hand does."""
        for secret in self.state_secrets():
            self.scene.client.delete(
                SECRET, name_of(secret), self.scene.namespace, propagation_policy="Background"
            )
