"""The embedded Kubernetes API server.

`ApiServer` is the way in; the other modules are its parts. It is judged against a real API server: anything
that the two answer differently is a bug here.
"""

from captf_runtime.testing.apiserver.server import ApiServer, Driver, ServerSnapshot

__all__ = ["ApiServer", "Driver", "ServerSnapshot"]
