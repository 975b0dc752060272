"""Progress events of a run, posted to the API server as far as that works.

Best effort by design: an event that cannot be posted costs one log line and at most two seconds, three in a
row end the attempts, and nothing of it ever changes the outcome of a run.
"""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import quote

from captf_controllers.runner.log import Log
from captf_controllers.runner.service_account import ServiceAccount, Unusable
from captf_controllers.runner.text import cut

CONTROLLER = "captf.io/runner"

_TIMEOUT = 2.0
_MOST_FAILURES = 3
_LONGEST_NOTE = 1024
_LONGEST_WORD = 128
_LONGEST_NAME = 200


@dataclass(frozen=True, slots=True)
class ObjectReference:
    """The object that the events are about."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str

    @classmethod
    def parse(cls, text: str) -> ObjectReference:
        """Reads `<apiVersion>/<kind>/<namespace>/<name>/<uid>`; the apiVersion may hold a slash itself.

        Raises:
            Unusable: a part is missing or empty.
        """
        parts = text.rsplit("/", 4)
        if len(parts) != 5 or not all(parts) or not all(parts[0].split("/")):
            raise Unusable("--event-object is not <apiVersion>/<kind>/<namespace>/<name>/<uid>")
        return cls(*parts)


class Recorder:
    """Posts events about one object.

    Args:
        reference: text of `--event-object`; empty means no events.
        job_name: the Job that the events are related to, possibly empty.
        environ: where the API server and the pod's name are found.
        redact: applied to every note.
        log: told once why events are off or failing.
    """

    def __init__(
        self,
        reference: str,
        job_name: str,
        environ: Mapping[str, str],
        redact: Callable[[str], str],
        log: Log,
    ) -> None:
        self._job_name = job_name
        self._redact = redact
        self._log = log
        self._instance = cut(environ.get("HOSTNAME") or socket.gethostname(), _LONGEST_WORD)
        self._failures = 0
        self._reported = False
        self._last_time = 0
        self._object: ObjectReference | None = None
        if not reference:
            return
        try:
            self._object = ObjectReference.parse(reference)
            self._account = ServiceAccount.of(environ)
        except Unusable as error:
            self._object = None
            log.warning("events are off", reason=str(error))

    def normal(self, reason: str, action: str, note: str) -> None:
        """Posts an event of type Normal."""
        self._emit("Normal", reason, action, note)

    def warning(self, reason: str, action: str, note: str) -> None:
        """Posts an event of type Warning."""
        self._emit("Warning", reason, action, note)

    def _emit(self, kind: str, reason: str, action: str, note: str) -> None:
        about = self._object
        if about is None or self._failures >= _MOST_FAILURES:
            return
        now = max(time.time_ns(), self._last_time + 1)
        self._last_time = now
        moment = datetime.fromtimestamp(now / 1e9, UTC)
        event: dict[str, object] = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {
                "name": f"{about.name[:_LONGEST_NAME].rstrip('-.')}.{now:x}",
                "namespace": about.namespace,
            },
            "eventTime": moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "type": kind,
            "reason": reason,
            "action": cut(action, _LONGEST_WORD),
            "note": cut(self._redact(note), _LONGEST_NOTE),
            "reportingController": CONTROLLER,
            "reportingInstance": self._instance,
            "regarding": {
                "apiVersion": about.api_version,
                "kind": about.kind,
                "namespace": about.namespace,
                "name": about.name,
                "uid": about.uid,
            },
        }
        if self._job_name:
            event["related"] = {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "namespace": about.namespace,
                "name": self._job_name,
            }
        try:
            path = f"/apis/events.k8s.io/v1/namespaces/{quote(about.namespace, safe='')}/events"
            status, _ = self._account.request("POST", path, json.dumps(event).encode(), timeout=_TIMEOUT)
        except (OSError, http.client.HTTPException, ValueError) as error:
            self._fail(type(error).__name__)
            return
        if 200 <= status < 300:
            self._failures = 0
        else:
            self._fail(f"status {status}")

    def _fail(self, reason: str) -> None:
        self._failures += 1
        if not self._reported:
            self._reported = True
            self._log.warning("an event could not be posted", reason=reason)
        if self._failures >= _MOST_FAILURES:
            self._log.debug("events are off after failures in a row", failures=self._failures)
