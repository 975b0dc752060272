"""A kubelet that runs pods as processes of this machine. `Kubelet` runs them, `Image` stands for an image."""

from .images import Image, ImageResolver
from .node import Kubelet

__all__ = ["Image", "ImageResolver", "Kubelet"]
