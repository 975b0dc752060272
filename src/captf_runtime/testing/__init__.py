"""An embedded Kubernetes for tests and local runs.

* `captf_runtime.testing.apiserver`: an API server in this process, over HTTP.
* `captf_runtime.testing.controllers`: garbage collection, namespace lifecycle, the Job controller.
* `captf_runtime.testing.kubelet`: runs pods as local processes.
* `captf_runtime.testing.faults`: what can go wrong between a client and the server.
* `captf_runtime.testing.clock`: a clock that moves only when told to.

All of it needs the extra `dev`; nothing outside of this package imports it.
"""
