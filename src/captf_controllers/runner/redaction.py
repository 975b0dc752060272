"""Keeping secrets out of everything that a run prints or reports.

Invariants: a redactor only grows during a run; text is redacted before lines are selected from it and before
anything is cut, so that no half of a secret slips through; the text of a secret never appears in an error.
"""

from __future__ import annotations

import base64
import binascii
import bisect
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

REPLACEMENT = "(sensitive)"

SHORTEST = 4
SHORTEST_BULK_LINE = 16

_PLAIN_NAMES = {
    "TF_DATA_DIR", "HOME", "TMPDIR", "TF_CLI_CONFIG_FILE", "TF_IN_AUTOMATION", "TF_INPUT",
    "KUBE_NAMESPACE", "PATH",
    # The pod's name: it is the lock holder that people look for in the messages about a held lock.
    "HOSTNAME",
}  # fmt: skip
_TELLING_WORDS = ("KEY", "SECRET", "TOKEN", "PASS", "CREDENTIAL", "PRIVATE", "AUTH", "CERT", "SESSION")
_LONG_VALUE = 16


class Redactor:
    """Replaces known secrets in text.

    A secret also matches in its JSON-escaped form, without the space around it (a file's last newline is
    seldom printed with it), and, when it has several lines, by each of its trimmed lines. Overlapping matches
    are replaced as one, so the longest wins and nothing of a shorter one is left.
    """

    def __init__(self) -> None:
        self._values: set[str] = set()
        self._lines: dict[str, int] = {}
        self._needles: list[str] = []
        self._lengths: list[int] = []
        self._stale = False

    def add(self, secret: str, *, line_minimum: int = SHORTEST) -> None:
        """Registers a secret.

        Args:
            secret: the value; shorter than four bytes it is ignored, since it would match everywhere.
            line_minimum: the shortest line, in bytes, that is matched on its own. A line that several secrets
                hold takes the largest of their minimums.
        """
        if _size(secret) < SHORTEST:
            return
        self._stale = True
        self._values.update(text for text in (secret, secret.strip()) if _size(text) >= SHORTEST)
        lines = secret.splitlines()
        if len(lines) > 1:
            for line in map(str.strip, lines):
                self._lines[line] = max(line_minimum, self._lines.get(line, SHORTEST))

    def redact(self, text: str) -> str:
        """`text` with every match replaced by `(sensitive)`."""
        if self._stale:
            self._index()
        spans: list[tuple[int, int]] = []
        for needle in self._needles[: bisect.bisect_right(self._lengths, len(text))]:
            at = text.find(needle)
            while at >= 0:
                spans.append((at, at + len(needle)))
                at = text.find(needle, at + 1)
        if not spans:
            return text
        spans.sort()
        pieces: list[str] = []
        done = 0
        start, end = spans[0]
        for next_start, next_end in [*spans[1:], (len(text) + 1, len(text) + 1)]:
            if next_start < end:
                end = max(end, next_end)
                continue
            pieces += (text[done:start], REPLACEMENT)
            done, start, end = end, next_start, next_end
        pieces.append(text[done:])
        return "".join(pieces)

    def _index(self) -> None:
        texts = set(self._values)
        texts.update(line for line, minimum in self._lines.items() if _size(line) >= minimum)
        needles = {form for text in texts for form in _forms(text)}
        self._needles = sorted(needles, key=len)
        self._lengths = [len(needle) for needle in self._needles]
        self._stale = False


def add_environment(redactor: Redactor, environ: Mapping[str, str]) -> None:
    """Registers the environment's values that have a telling name or are long enough to be a secret."""
    for name, value in environ.items():
        if name in _PLAIN_NAMES or name.startswith("KUBERNETES_"):
            continue
        if any(word in name.upper() for word in _TELLING_WORDS) or len(os.fsencode(value)) >= _LONG_VALUE:
            redactor.add(value)


def add_inputs(redactor: Redactor, root: Path) -> None:
    """Registers what the rendered files of a root hold: values of sensitive variables, and bootstrap data.

    Files that cannot be read or parsed register nothing: the runtime refuses them right after.
    """
    main = _object(root / "main.tf.json")
    values = _object(root / "terraform.tfvars.json")
    variables = main.get("variable")
    for name, declaration in variables.items() if isinstance(variables, dict) else ():
        if isinstance(declaration, dict) and declaration.get("sensitive") is True:
            for leaf in _strings(values.get(name)):
                redactor.add(leaf)
    bootstrap = values.get("bootstrap_data")
    if isinstance(bootstrap, str):
        redactor.add(bootstrap, line_minimum=SHORTEST_BULK_LINE)
        try:
            decoded = base64.b64decode(bootstrap, validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            return
        redactor.add(decoded, line_minimum=SHORTEST_BULK_LINE)


def add_plan(redactor: Redactor, plan: Mapping[str, Any]) -> None:
    """Registers the strings that a plan marks sensitive: in its resource changes, before and after, and in
    the data resources of its prior state. Output changes are left out: every re-exported output is marked.

    Args:
        plan: the document of `show -json`.
    """
    for change in _objects(plan.get("resource_changes")):
        details = change.get("change")
        if isinstance(details, dict):
            for value, marker in (("before", "before_sensitive"), ("after", "after_sensitive")):
                _add_marked(redactor, details.get(value), details.get(marker))
    prior = plan.get("prior_state")
    values = prior.get("values") if isinstance(prior, dict) else None
    modules = [values.get("root_module")] if isinstance(values, dict) else []
    while modules:
        module = modules.pop()
        if not isinstance(module, dict):
            continue
        for resource in _objects(module.get("resources")):
            if resource.get("mode") == "data":
                _add_marked(redactor, resource.get("values"), resource.get("sensitive_values"))
        modules.extend(_objects(module.get("child_modules")))


def _add_marked(redactor: Redactor, value: object, marker: object) -> None:
    if marker is True:
        for leaf in _strings(value):
            redactor.add(leaf, line_minimum=SHORTEST_BULK_LINE)
    elif isinstance(marker, dict) and isinstance(value, dict):
        for key, part in marker.items():
            _add_marked(redactor, value.get(key), part)
    elif isinstance(marker, list) and isinstance(value, list):
        for item, part in zip(value, marker, strict=False):
            _add_marked(redactor, item, part)


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from _strings(part)
    elif isinstance(value, list):
        for part in value:
            yield from _strings(part)


def _objects(value: object) -> Iterable[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _object(path: Path) -> dict[str, Any]:
    try:
        parsed = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return parsed if isinstance(parsed, dict) else {}


def _forms(text: str) -> Iterator[str]:
    yield text
    escaped = json.dumps(text, ensure_ascii=False)[1:-1]
    yield escaped
    yield json.dumps(text)[1:-1]
    # The runtimes escape these five in JSON, so that it may stand in HTML.
    for character in "<>&\u2028\u2029":
        escaped = escaped.replace(character, f"\\u{ord(character):04x}")
    yield escaped


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))
