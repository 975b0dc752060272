"""What was answered, in a form that can be kept and compared between servers.

Everything that must differ from run to run (uids, times, versions, names of namespaces, tokens) is replaced
by a placeholder; what the real server orders at random is sorted, and what it orders by whole seconds is as if all
were the same second. Nothing else is touched.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.conformance.target import Case, Exchange

ANSWERS = Path(__file__).parent / "answers"

_TIMES = frozenset(
    {
        "creationTimestamp",
        "deletionTimestamp",
        "lastTransitionTime",
        "lastProbeTime",
        "time",
        "expirationTimestamp",
        "startTime",
        "completionTime",
    }
)
_VERSIONS = frozenset({"storageVersionHash", "resourceVersion", "continue", "token", "uid", "controller-uid"})
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_ADDRESS = re.compile(r"0xc[0-9a-f]{9,}")
_AGE = re.compile(r"^(<invalid>|(\d+[smhd])+)$")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


def normalised(value: Any, case: Case) -> Any:
    """A decoded answer (which is used up) or a path, made comparable."""
    if isinstance(value, dict):
        _sort_causes(value)
        if value.get("kind") == "APIResourceList":
            value["resources"].sort(key=lambda each: each["name"])
        for column in value.get("columnDefinitions") or ():
            # Prose; where it matters a case asserts it.
            column["description"] = "<text>"
        out = {}
        for key, item in value.items():
            if key == "managedFields" and not case.keep_managed_fields:
                continue
            if key == "managedFields" and isinstance(item, list):
                item = sorted(item, key=_in_one_second)
            if key == "selfLink" or (key == "continue" and not item):
                continue
            if key in _TIMES and isinstance(item, str) and _TIME.fullmatch(item):
                out[key] = "<time>"
            elif key in _VERSIONS and isinstance(item, str) and item:
                out[key] = f"<{key}>"
            else:
                out[normalised(key, case)] = normalised(item, case)
        return out
    if isinstance(value, list):
        return [normalised(item, case) for item in value]
    if isinstance(value, str):
        return _text(value, case)
    return value


def _in_one_second(entry: dict[str, Any]) -> tuple[str, ...]:
    """What orders the entries of field managers whose times are the same."""
    return tuple(str(entry.get(name) or "") for name in ("operation", "manager", "apiVersion"))


def _text(text: str, case: Case) -> str:
    text = text.replace(case.namespace, "<ns>")
    for secret, placeholder in case.secrets.items():
        text = text.replace(secret, placeholder)
    if _AGE.match(text):
        return "<age>"
    text = _ADDRESS.sub("<address>", _UUID.sub("<uid>", text))
    return _TIME.sub("<time>", text)


def _sort_causes(body: dict[str, Any]) -> None:
    """Sort the causes of a Status and the list of them in its message."""
    if body.get("kind") != "Status":
        return
    causes = (body.get("details") or {}).get("causes") or []
    if len(causes) < 2:
        return
    causes.sort(key=lambda cause: json.dumps(cause, sort_keys=True))
    message = str(body.get("message") or "")
    if message.endswith("]") and ": [" in message:
        texts = sorted({f"{cause.get('field')}: {cause.get('message')}" for cause in causes})
        body["message"] = message[: message.index(": [")] + ": [" + ", ".join(texts) + "]"


def as_json(transcript: list[Exchange]) -> list[dict[str, Any]]:
    """A transcript as it is kept."""
    return [
        {"request": exchange.request, "code": exchange.code, "body": exchange.body} for exchange in transcript
    ]


def first_difference(kept: list[dict[str, Any]], now: list[dict[str, Any]]) -> str:
    """Where two transcripts differ first; empty when they are equal."""
    for left, right in zip(kept, now, strict=False):
        if left != right:
            lines = [
                f"  {path}: the real server {_shown(a)}, this one {_shown(b)}"
                for path, a, b in _leaves(left, right)
            ]
            return f"{left['request']} was answered differently\n" + "\n".join(lines[:20])
    if len(kept) != len(now):
        return f"the real server was asked {len(kept)} times, this one {len(now)} times"
    return ""


_ABSENT = object()


def _leaves(left: Any, right: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    if isinstance(left, dict) and isinstance(right, dict):
        for key in sorted({*left, *right}):
            yield from _leaves(left.get(key, _ABSENT), right.get(key, _ABSENT), f"{path}.{key}")
    elif isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        for index, (a, b) in enumerate(zip(left, right, strict=True)):
            yield from _leaves(a, b, f"{path}[{index}]")
    elif left is _ABSENT or right is _ABSENT or left != right:
        yield path, left, right


def _shown(value: Any) -> str:
    return "has nothing" if value is _ABSENT else "has " + json.dumps(value, ensure_ascii=False)


def load(version: str) -> dict[str, list[dict[str, Any]]]:
    """The answers of the last real run against a version, by case."""
    path = ANSWERS / f"{version}.json"
    found: dict[str, list[dict[str, Any]]] = json.loads(path.read_text()) if path.exists() else {}
    return found


def save(version: str, answers: dict[str, list[dict[str, Any]]]) -> Path:
    """Keep the answers of a real run."""
    path = ANSWERS / f"{version}.json"
    lines = [
        f" {json.dumps(case)}: {json.dumps(answers[case], sort_keys=True, ensure_ascii=False)}"
        for case in sorted(answers)
    ]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    return path
