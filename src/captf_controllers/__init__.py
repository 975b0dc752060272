"""CAPTF: Cluster API infrastructure from ordinary Terraform and OpenTofu modules."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("captf")
except PackageNotFoundError:  # run from a source tree that was not installed
    __version__ = "0.0.0"
