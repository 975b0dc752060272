"""CAPTF: Cluster API infrastructure from ordinary Terraform and OpenTofu modules."""


def __getattr__(name: str) -> str:
    """``__version__``: read when asked for, because to read it costs more than the whole start of a runner."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("captf")
    except PackageNotFoundError:  # run from a source tree that was not installed
        return "0.0.0"
