"""A kubelet that runs pods as processes of this machine.

`Kubelet` runs the pods of any API server, `Image` stands for an image; `LocalNode` adds both a kubelet and a
Job controller to the embedded API server.
"""

from .driver import LocalNode
from .images import Image, ImageResolver
from .node import Kubelet

__all__ = ["Image", "ImageResolver", "Kubelet", "LocalNode"]
