"""The low-level modules of the official `kubernetes` package, without the rest of it.

Importing the package in the ordinary way runs its `__init__` modules, which pull in hundreds of generated
models and the OAuth libraries: tens of megabytes and a quarter of a second that this library has no use
for. Here the parent packages are replaced by bare ones for the time of the import, so that only the module
asked for and what it names are loaded. They are private to this library: `sys.modules` is left as it was
found, so a program that imports `kubernetes` itself gets the whole package.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import threading
from types import ModuleType
from typing import Any

_PACKAGES = ("kubernetes", "kubernetes.client", "kubernetes.config", "kubernetes.utils")
_lock = threading.Lock()
_loaded: dict[str, ModuleType] = {}


def load(module: str) -> ModuleType:
    """Return a module of the official package, such as "kubernetes.client.rest".

    Raises:
        ImportError: the package is not installed or has no such module.
    """
    with _lock:
        if module in _loaded:
            return _loaded[module]
        before = _take_out()
        try:
            sys.modules.update(_loaded or _bare_packages())
            client: Any = sys.modules["kubernetes.client"]
            client.Configuration = importlib.import_module("kubernetes.client.configuration").Configuration
            client.ApiClient = _api_client
            return importlib.import_module(module)
        finally:
            _loaded.update(_take_out())
            sys.modules.update(before)


def _take_out() -> dict[str, ModuleType]:
    """Remove the package and all below it from `sys.modules` and return what was there."""
    names = [name for name in sys.modules if name == "kubernetes" or name.startswith("kubernetes.")]
    return {name: sys.modules.pop(name) for name in names}


def _bare_packages() -> dict[str, ModuleType]:
    spec = importlib.util.find_spec("kubernetes")
    if spec is None or not spec.submodule_search_locations:
        raise ImportError("the package `kubernetes` is not installed")
    packages: dict[str, ModuleType] = {}
    for name in _PACKAGES:
        package = ModuleType(name)
        suffix = name.partition(".")[2]
        package.__path__ = [
            f"{root}/{suffix}" if suffix else root for root in spec.submodule_search_locations
        ]
        packages[name] = package
    return packages


def _api_client(*args: Any, **kwargs: Any) -> Any:
    """Stand in for the official client, which only the refresh of an OIDC token still needs."""
    return importlib.import_module("kubernetes.client").ApiClient(*args, **kwargs)
