"""Structural schemas of custom resource definitions: pruning, defaulting, validation, checks.

    schema = compile_schema(version["schema"]["openAPIV3Schema"])
    schema.prune(obj)
    schema.apply_defaults(obj)
    causes = schema.validate(obj, old)

Everything here is pure: no I/O, no clock, no state. Texts follow the API server's word by word.
"""

from captf_runtime.testing.apiserver.schema.causes import Cause, aggregate
from captf_runtime.testing.apiserver.schema.compiled import CompiledSchema, Mode, compile_schema
from captf_runtime.testing.apiserver.schema.definition import default_crd, validate_crd

__all__ = ["Cause", "CompiledSchema", "Mode", "aggregate", "compile_schema", "default_crd", "validate_crd"]
