"""What was answered, in a form that can be kept and compared between servers.

Everything that must differ from run to run (uids, times, versions, names of namespaces, tokens) is replaced
by a placeholder; what the real server orders at random is sorted. Nothing else is touched.
"""

from __future__ import annotations

import json
import re
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
_AGE = re.compile(r"^(<invalid>|(\d+[smhd])+)$")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


def normalised(value: Any, case: Case) -> Any:
    """A decoded answer (which is used up) or a path, made comparable."""
    if isinstance(value, dict):
        _sort_causes(value)
        out = {}
        for key, item in value.items():
            if key == "managedFields" and not case.keep_managed_fields:
                continue
            if key == "selfLink":
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


def _text(text: str, case: Case) -> str:
    text = text.replace(case.namespace, "<ns>")
    for secret, placeholder in case.secrets.items():
        text = text.replace(secret, placeholder)
    if _AGE.match(text):
        return "<age>"
    text = _UUID.sub("<uid>", text)
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
            shown = [json.dumps(each, indent=1, sort_keys=True, ensure_ascii=False) for each in (left, right)]
            return f"the real server answered\n{shown[0]}\nthis one\n{shown[1]}"
    if len(kept) != len(now):
        return f"the real server was asked {len(kept)} times, this one {len(now)} times"
    return ""


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
