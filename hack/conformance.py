"""Write tests/conformance/README.md: which tests prove which requirement of the runtime, and how true the embedded
server is.

`python -m hack.conformance` writes the page; with `--check` it writes nothing and exits with status 1 when the page
is out of date. Either way it fails when a requirement has no test, or a test names one that does not exist.
"""

from __future__ import annotations

import argparse
import ast
import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.conformance.versions import DIFFERENCES, RESULTS

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "tests" / "conformance" / "README.md"
ANSWERS = ROOT / "tests" / "conformance" / "answers"

REQUIREMENTS: dict[str, dict[str, str]] = {
    "Ground rules": {
        "G1": "objects are plain dictionaries; unknown fields survive",
        "G2": "clocks, sleeps, randomness and thread names can be injected",
        "G3": "every blocking wait ends within two seconds of the stop signal",
        "G4": "threads are named, and an exception that leaves one is logged, counted and handled",
        "G5": "loggers carry their context; secrets are never logged",
        "G6": "the strict type check passes",
    },
    "Client": {
        "CL1": "configuration in order; raw responses decoded once",
        "CL2": "pools as large as their users need",
        "CL3": "timeouts and keepalive on every request",
        "CL4": "no transport retries; user agent",
        "CL5": "tokens re-read; 401 reloads once",
        "CL6": "redirects are not followed",
        "CL7": "all verbs, subresources and options",
        "CL8": "merge, JSON and apply patches; minimal merge patches",
        "CL9": "at most one main and one status request per pass",
        "CL10": "finalizer helpers lock",
        "CL11": "delete with preconditions and explicit propagation",
        "CL12": "pages of one version; expired tokens start over",
        "CL13": "kind and version filled in on list items",
        "CL14": "bodies that are no Status still give an error of their code",
        "CL15": "reads are retried, writes only when certainly not executed",
        "CL16": "retry on conflict",
    },
    "Readers": {
        "RD1": "two readers with one interface",
        "RD2": "what a cached read refuses",
        "RD3": "cached lists in order, by namespace, label or index",
        "RD4": "read your writes",
    },
    "Reflector": {
        "RF1": "list phase",
        "RF2": "streaming list and its fallback",
        "RF3": "watch phase",
        "RF4": "which versions count",
        "RF5": "410 in any form leads to one relist",
        "RF6": "backoff",
        "RF7": "401, 403 and 404 keep retrying",
        "RF8": "idle detection",
        "RF9": "decoding of broken streams",
        "RF10": "stop leaves nothing",
        "RF11": "transforms",
        "RF12": "metadata-only form",
    },
    "Informer": {
        "IN1": "informers are shared",
        "IN2": "store and indexes agree",
        "IN3": "bytes and header; reads are copies",
        "IN4": "events to handlers",
        "IN5": "initial sync barrier",
        "IN6": "handlers apart from the watch, pending events merge",
        "IN7": "a handler that raises",
        "IN8": "resync",
        "IN9": "the store equals a fresh list in the end",
        "IN10": "memory",
    },
    "Work queue": {
        "WQ1": "never two workers on one key, no add lost",
        "WQ2": "get and done; order",
        "WQ3": "delayed adds",
        "WQ4": "priorities",
        "WQ5": "aging",
        "WQ6": "rate limiter",
        "WQ7": "shutdown",
        "WQ8": "speed",
    },
    "Controller": {
        "CT1": "construction",
        "CT2": "handlers",
        "CT3": "predicates",
        "CT4": "start order",
        "CT5": "results",
        "CT6": "any exception is contained",
        "CT7": "context and timeout",
        "CT8": "stop",
    },
    "Requeue policies": {
        "RP1": "retry is a pure function",
        "RP2": "the shortest wait wins",
        "RP3": "limits of the count",
    },
    "Leader election": {
        "LE1": "configuration is checked",
        "LE2": "acquiring without comparing clocks",
        "LE3": "what a takeover and a renewal write",
        "LE4": "renewal counts from before its request",
        "LE5": "exceptions are failed tries",
        "LE6": "losing",
        "LE7": "the fence",
        "LE8": "on_started",
        "LE9": "release",
        "LE10": "renewal under load",
    },
    "Manager": {
        "MG1": "groups in order",
        "MG2": "runnables added late",
        "MG3": "a runnable that raises",
        "MG4": "stop order and grace period",
        "MG5": "health",
        "MG6": "a registry per manager",
        "MG7": "signals",
        "MG8": "several caches",
    },
    "Event recorder": {
        "EV1": "shape of an event",
        "EV2": "emit never blocks",
        "EV3": "series",
        "EV4": "many different notes",
        "EV5": "rate of new events",
        "EV6": "retries of writes",
        "EV7": "bounded state and flush",
    },
    "Metrics": {
        "MX1": "names and labels",
        "MX2": "buckets",
        "MX3": "requests",
        "MX4": "work queue",
        "MX5": "election and informers",
    },
    "Embedded API server": {
        "AS1": "HTTP or TLS, kubeconfig",
        "AS2": "version, health, discovery, OpenAPI",
        "AS3": "tables and partial metadata",
        "AS4": "kubectl and Terraform work",
        "AS5": "kinds, and what is not found",
        "AS6": "versions",
        "AS7": "create",
        "AS8": "generated names",
        "AS9": "namespaces and names that do not match",
        "AS10": "generation",
        "AS11": "stale and absent versions",
        "AS12": "status",
        "AS13": "patches",
        "AS14": "apply",
        "AS15": "custom resource definitions",
        "AS16": "custom resources",
        "AS17": "metadata, limits, dry run",
        "AS18": "secrets, leases, events",
        "AS19": "finalizers",
        "AS20": "preconditions, policies, collections",
        "AS21": "garbage collection",
        "AS22": "namespaces that end",
        "AS23": "controllers in background or by steps",
        "AS24": "pages and versions of lists",
        "AS25": "selectors",
        "AS26": "watches",
        "AS27": "access",
        "AS28": "webhooks",
        "AS29": "faults",
        "AS30": "log, snapshot, speed",
    },
    "Conformance": {
        "CF1": "one set of cases for embedded and real servers",
        "CF2": "a case for every clause, at least 200",
        "CF3": "report and kept answers",
        "CF4": "the library's tests against a real server",
        "CF5": "soak",
    },
}
"""Area → requirement → what it asks in a few words."""


@dataclass(frozen=True, slots=True)
class Proof:
    """A test that names requirements."""

    file: str
    test: str
    requirements: tuple[str, ...]


def _marked(decorators: list[ast.expr]) -> Iterator[str]:
    for decorator in decorators:
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func).endswith("mark.requirement"):
            yield from (str(item.value) for item in decorator.args if isinstance(item, ast.Constant))


def _module_marks(tree: ast.Module) -> list[ast.expr]:
    """What `pytestmark` holds."""
    for node in tree.body:
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        if isinstance(node, ast.Assign) and isinstance(target, ast.Name) and target.id == "pytestmark":
            return list(node.value.elts) if isinstance(node.value, ast.List | ast.Tuple) else [node.value]
    return []


def proofs(directory: Path) -> list[Proof]:
    """Every test below a directory that names requirements, by its own mark, its class's or its module's."""
    found: list[Proof] = []
    for path in sorted(directory.rglob("test_*.py")):
        tree = ast.parse(path.read_text())
        everywhere = tuple(_marked(_module_marks(tree)))
        name = str(path.relative_to(ROOT))
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                shared = everywhere + tuple(_marked(node.decorator_list))
                members: list[ast.stmt] = node.body
                prefix = f"{node.name}."
            else:
                shared, members, prefix = everywhere, [node], ""
            for member in members:
                if isinstance(member, ast.FunctionDef) and member.name.startswith("test_"):
                    marks = tuple(dict.fromkeys(shared + tuple(_marked(member.decorator_list))))
                    if marks:
                        found.append(Proof(name, prefix + member.name, marks))
    return found


def problems(found: Sequence[Proof]) -> list[str]:
    """Requirements without a test, and marks of requirements that do not exist."""
    known = {identity for area in REQUIREMENTS.values() for identity in area}
    named = {identity for proof in found for identity in proof.requirements}
    missing = [f"{identity} has no test" for identity in sorted(known - named, key=_order)]
    unknown = [
        f"{proof.file}: {proof.test} names {identity}, which does not exist"
        for proof in found
        for identity in proof.requirements
        if identity not in known
    ]
    return missing + unknown


def _order(identity: str) -> tuple[str, int]:
    letters = identity.rstrip("0123456789")
    return letters, int(identity[len(letters) :])


def page(found: Sequence[Proof]) -> str:
    """The page."""
    lines = [
        "# Conformance",
        "",
        "<!-- Generated by `python -m hack.conformance`; change the tests, not this page. -->",
        "",
        "The cases in this directory ask a server by raw HTTP and say what it must answer: code, reason, message,",
        "details and what is stored afterwards. They run against the embedded API server, as version 1.20 and as a",
        "modern one, and against a real one: set `KUBEBUILDER_ASSETS` to a folder with etcd, kube-apiserver and",
        "kube-controller-manager, or `CAPTF_CONFORMANCE_KUBECONFIG` to a kubeconfig.",
        "",
        "Whatever a case asks is also noted with the whole answer, less what differs from run to run. The notes of",
        "the last real run are kept in `answers/`; the embedded server must give the same ones, byte for byte.",
        "Renew them with `CAPTF_CONFORMANCE_RECORD=all pytest tests/conformance -k real`.",
        "",
        "## Kept answers",
        "",
    ]
    for path in sorted(ANSWERS.glob("*.json")):
        answers = json.loads(path.read_text())
        requests = sum(len(case) for case in answers.values())
        lines.append(f"- Version {path.stem}: {len(answers)} cases, {requests} answers and events.")
    lines += ["", "## Results that depend on the version", "", "| Result | By version |", "| --- | --- |"]
    for key in sorted(RESULTS):
        values = "; ".join(f"{version}: `{_short(value)}`" for version, value in RESULTS[key].items())
        lines.append(f"| {key} | {values} |")
    lines += ["", "## Differences that are meant", ""]
    lines += [f"- {name}: {reason}" for name, reason in sorted(DIFFERENCES.items())] or ["None."]
    by_requirement: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for proof in found:
        for identity in proof.requirements:
            by_requirement[identity][proof.file].append(proof.test)
    for area, requirements in REQUIREMENTS.items():
        lines += ["", f"## {area}", "", "| Requirement | Asks | Tests |", "| --- | --- | --- |"]
        for identity, text in requirements.items():
            files = by_requirement.get(identity, {})
            tests = "; ".join(f"`{name}` ({len(files[name])})" for name in sorted(files)) or "none"
            lines.append(f"| {identity} | {text} | {tests} |")
    return "\n".join(lines) + "\n"


def _short(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False).replace("|", "\\|").replace("`", "'")
    return text if len(text) <= 100 else text[:97] + "..."


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument(
        "--check", action="store_true", help="write nothing, fail when the page is out of date"
    )
    options = parser.parse_args(arguments)
    found = proofs(ROOT / "tests")
    wrong = problems(found)
    for line in wrong:
        print(line, file=sys.stderr)
    text = page(found)
    if options.check:
        stale = not PAGE.exists() or PAGE.read_text() != text
        if stale:
            print(f"{PAGE.relative_to(ROOT)} is out of date: run python -m hack.conformance", file=sys.stderr)
        return 1 if wrong or stale else 0
    PAGE.write_text(text)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
