"""The decision table of docs/deletion.md, made from the rows that the decision is tested with.

``python -m tests.decision_table`` prints it.
"""

from __future__ import annotations

from tests.unit.test_deletion_decision import HELD_REASONS, rows

STATES = {
    "none": "none, and never applied",
    "readable": "reads",
    "failed": "reads; the last destroy failed, in backoff",
    "failed, due again": "reads; the last destroy failed, backoff over",
    "no inputs": "reads; nothing to render (machine)",
    "unknown": "none, and the first apply's outcome is unknown",
    **dict.fromkeys(HELD_REASONS, "lost, corrupt, encrypted or inconsistent"),
}
ANNOTATIONS = {
    "none": "none",
    "abandon ok": "abandon = UID",
    "abandon wrong": "abandon = anything else",
    "restore ok": "restore, complete backup",
    "restore bad": "restore, no such backup",
    "abandon ok, restore ok": "abandon = UID and restore",
    "abandon wrong, restore ok": "abandon = anything else, and restore",
}
STEPS = {
    "FIN": "finalizer off",
    "DST": "destroy Job",
    "RST": "restore Job",
    "BKO": "waits for its backoff",
    "IDN": "waits for the identity",
    "CRD": "waits for credentials",
    "CRDr": "waits for credentials",
    "NOI": "waits for inputs",
    "HLD": "held",
    "HLD+": "held; says that the value is ignored",
    "HLDr": "held; says that there is no such backup",
    "ABN:s": "abandoned",
    "ABN:f": "abandoned",
    "ABN:c": "abandoned",
    "ABN:i": "abandoned",
}


def table() -> str:
    """The table in Markdown: annotations that are answered alike share a row, and so do states."""
    grouped: dict[tuple[str, tuple[str, str, str]], list[str]] = {}
    for state, annotation, *codes in rows():
        ready, refused, missing = (STEPS[code] for code in codes)
        notes = grouped.setdefault((STATES[state], (ready, refused, missing)), [])
        if ANNOTATIONS[annotation] not in notes:
            notes.append(ANNOTATIONS[annotation])
    merged: dict[tuple[str, tuple[str, str, str]], list[str]] = {}
    for (state, steps), notes in grouped.items():
        merged.setdefault(("; ".join(notes), steps), []).append(state)
    lines = [
        "| State | Annotation | Credentials ready | Identity refuses | Credentials not prepared | Retain |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for (given, steps), states in merged.items():
        lines.append(f"| {' *or* '.join(states)} | {given} | {' | '.join(steps)} | retained |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(table(), end="")
