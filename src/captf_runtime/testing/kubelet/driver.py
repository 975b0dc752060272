"""Jobs that really run, as an extension of the embedded API server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from captf_runtime.client import Client
from captf_runtime.testing.controllers.jobs import JobController

from .images import Image, ImageResolver
from .node import Kubelet

if TYPE_CHECKING:
    from captf_runtime.testing.apiserver import ApiServer
    from captf_runtime.testing.apiserver.subresources import LogOptions

__all__ = ["LocalNode"]


class LocalNode:
    """A Job controller and a kubelet that live with an embedded API server.

    Expected flow::

        server.add_driver(LocalNode(images={"registry.example/app:1": Image(directory, digest)}))

    Guarantees: started after the server and stopped before it, with every process and file; reads of pods'
    logs through the server answer with what the processes wrote.

    Args:
        images, environment, root, log_dir, max_pods: of the `Kubelet`.
        node_name: the node that pods run on.

    The deadlines of Jobs follow the server's clock; processes live in real time whatever that clock says.
    """

    def __init__(
        self,
        *,
        images: Mapping[str, Image] | ImageResolver,
        environment: Mapping[str, str] | None = None,
        root: Path | None = None,
        log_dir: Path | None = None,
        node_name: str = "local",
        max_pods: int = 110,
    ) -> None:
        self._images = images
        self._environment = dict(environment or {})
        self._root = root
        self._log_dir = log_dir
        self._node_name = node_name
        self._max_pods = max_pods
        self._client: Client | None = None
        self._jobs: JobController | None = None
        self._kubelet: Kubelet | None = None

    @property
    def kubelet(self) -> Kubelet:
        """The kubelet of the running node.

        Raises:
            RuntimeError: the node is not running.
        """
        if self._kubelet is None:
            raise RuntimeError("the local node is not running: add it to a server and start that")
        return self._kubelet

    def start(self, server: ApiServer) -> None:
        """Begin to run Jobs and pods of `server`, which must be serving."""
        kubeconfig = server.kubeconfig(user="local-node", groups=("system:masters",))
        self._client = Client.from_config(kubeconfig=kubeconfig, user_agent="local-node")
        self._jobs = JobController(self._client, clock=server.clock, modern=server.mode == "modern")
        self._kubelet = Kubelet(
            self._client,
            images=self._images,
            environment=self._environment,
            root=self._root,
            log_dir=self._log_dir,
            node_name=self._node_name,
            max_pods=self._max_pods,
        )
        server.register_log_provider(self._log)
        self._jobs.start()
        self._kubelet.start()

    def stop(self) -> None:
        """End all processes and threads and remove all files."""
        for part in (self._jobs, self._kubelet):
            if part is not None:
                part.stop()
        if self._client is not None:
            self._client.close()
        self._client = self._jobs = self._kubelet = None

    def _log(self, namespace: str, name: str, options: LogOptions) -> Iterator[bytes] | None:
        kubelet = self._kubelet
        if kubelet is None:
            return None
        return kubelet.log(
            namespace,
            name,
            options.container,
            tail_lines=options.tail_lines,
            limit_bytes=options.limit_bytes,
            follow=options.follow,
            previous=options.previous,
        )
