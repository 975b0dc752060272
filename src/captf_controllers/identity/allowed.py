"""Whether a namespace may use an identity: asked afresh by every pass, never remembered."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from captf_controllers.api.identity import TerraformClusterIdentitySpec
from captf_runtime.client import NotFound
from captf_runtime.client.verbs import Verbs
from captf_runtime.objects import NAMESPACE, labels_of, selector_from

__all__ = ["is_allowed", "namespace_allowed"]


def is_allowed(
    spec: TerraformClusterIdentitySpec,
    namespace: str,
    read_labels: Callable[[], Mapping[str, str] | None],
) -> bool:
    """Say whether the identity's spec allows the namespace.

    Nothing is allowed by default. The list and the selector add up; an empty selector allows every namespace,
    also one that does not exist. A selector that does not parse allows nothing: a retry could not mend it.

    Args:
        read_labels: the labels of the Namespace, None when it does not exist. Called only when they decide.
    """
    allowed = spec.allowed_namespaces
    if allowed is None:
        return False
    if allowed.list is not None and namespace in allowed.list:
        return True
    if allowed.selector is None:
        return False
    try:
        selector = selector_from(allowed.selector)
    except (ValueError, TypeError, AttributeError):
        return False
    if not selector.requirements:
        return True
    labels = read_labels()
    return labels is not None and selector.matches(labels)


def namespace_allowed(client: Verbs, spec: TerraformClusterIdentitySpec, namespace: str) -> bool:
    """`is_allowed`, with the labels read from the API server.

    Raises:
        ApiError: the Namespace could not be read.
    """

    def read_labels() -> Mapping[str, str] | None:
        try:
            return labels_of(client.get(NAMESPACE, namespace, metadata_only=True))
        except NotFound:
            return None

    return is_allowed(spec, namespace, read_labels)
