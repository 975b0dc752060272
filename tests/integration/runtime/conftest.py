from tests.integration.targets import client, namespace, target

__all__ = ["client", "namespace", "target"]
