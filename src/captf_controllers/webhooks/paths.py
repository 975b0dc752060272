"""Where each kind's validator is served."""

from __future__ import annotations

from captf_controllers.api.kinds import GROUP, VERSION
from captf_runtime.objects import Kind


def path_of(kind: Kind) -> str:
    """The path that the webhook configuration names for a kind."""
    return f"/validate-{GROUP.replace('.', '-')}-{VERSION}-{kind.kind.lower()}"
