"""The program that a CAPTF Job executes inside the module image.

It stands alone: only the standard library, nothing of the rest of CAPTF, so that it can be frozen into one
executable that starts in an image without an interpreter, a shell or a libc. One run checks the image, builds
a working directory, drives the image's `terraform` or `tofu` one command at a time and leaves one small JSON
document that the manager reads from the pod's status.
"""
