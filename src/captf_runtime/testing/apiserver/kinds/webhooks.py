"""Webhook configurations: defaults and what is refused."""

from __future__ import annotations

from captf_runtime.objects import Object
from captf_runtime.testing.apiserver import names
from captf_runtime.testing.apiserver.kinds.base import Mode, Strategy, WriteContext
from captf_runtime.testing.apiserver.status import Cause, invalid_value, required, unsupported_value

_SIDE_EFFECTS = ("None", "NoneOnDryRun")
_VERSIONS = ("v1", "v1beta1")


class WebhookConfigurationStrategy(Strategy):
    """ValidatingWebhookConfigurations.

    Other than the real server this one takes `http` in a webhook's URL, so that tests need no certificates.
    """

    generation_modes: tuple[Mode, ...] = ("modern", "1.20")
    unconditional_update = False

    def default(self, obj: Object, context: WriteContext) -> None:
        for webhook in obj.get("webhooks") or []:
            webhook.setdefault("failurePolicy", "Fail")
            webhook.setdefault("matchPolicy", "Equivalent")
            webhook.setdefault("namespaceSelector", {})
            webhook.setdefault("objectSelector", {})
            webhook.setdefault("timeoutSeconds", 10)
            for rule in webhook.get("rules") or []:
                rule.setdefault("scope", "*")
            service = (webhook.get("clientConfig") or {}).get("service")
            if isinstance(service, dict):
                service.setdefault("port", 443)

    def validate(self, obj: Object, context: WriteContext) -> list[Cause]:
        causes: list[Cause] = []
        seen: set[str] = set()
        for index, webhook in enumerate(obj.get("webhooks") or []):
            path = f"webhooks[{index}]"
            causes += _validate(webhook, path)
            name = str(webhook.get("name") or "")
            if name in seen:
                causes.append(Cause("FieldValueDuplicate", f'Duplicate value: "{name}"', f"{path}.name"))
            seen.add(name)
        return causes


def _validate(webhook: Object, path: str) -> list[Cause]:
    causes: list[Cause] = []
    name = str(webhook.get("name") or "")
    causes += [invalid_value(f"{path}.name", name, problem) for problem in names.subdomain(name)]
    if not causes and name.count(".") < 2:
        detail = "should be a domain with at least three segments separated by dots"
        causes.append(invalid_value(f"{path}.name", name, detail))
    versions = webhook.get("admissionReviewVersions") or []
    if not versions:
        causes.append(required(f"{path}.admissionReviewVersions", "must specify one of v1, v1beta1"))
    elif not set(versions) & set(_VERSIONS):
        detail = "must include at least one of v1, v1beta1"
        causes.append(invalid_value(f"{path}.admissionReviewVersions", list(versions), detail))
    policy = webhook.get("failurePolicy")
    if policy not in ("Fail", "Ignore"):
        causes.append(unsupported_value(f"{path}.failurePolicy", str(policy), ("Fail", "Ignore")))
    effects = webhook.get("sideEffects")
    if effects is None:
        causes.append(required(f"{path}.sideEffects", "must specify one of None, NoneOnDryRun"))
    elif effects not in _SIDE_EFFECTS:
        causes.append(unsupported_value(f"{path}.sideEffects", str(effects), _SIDE_EFFECTS))
    timeout = webhook.get("timeoutSeconds")
    if not isinstance(timeout, int) or not 1 <= timeout <= 30:
        detail = "the timeout value must be between 1 and 30 seconds"
        causes.append(invalid_value(f"{path}.timeoutSeconds", timeout, detail))
    config = webhook.get("clientConfig") or {}
    if bool(config.get("url")) == bool(config.get("service")):
        causes.append(required(f"{path}.clientConfig", "exactly one of url or service is required"))
    return causes
