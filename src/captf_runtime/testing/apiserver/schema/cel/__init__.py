"""The part of the Common Expression Language that rules in custom resource definitions use.

    program = compile_expression("self.minReplicas <= self.maxReplicas")
    program.evaluate({"self": {"minReplicas": 1, "maxReplicas": 3}})   # True

Compilation checks syntax and the names of variables and functions;
`analysis` adds the check of field names and types against a schema, and an estimate of the cost.
"""

from captf_runtime.testing.apiserver.schema.cel.evaluation import Program, compile_expression
from captf_runtime.testing.apiserver.schema.cel.syntax import CompileError
from captf_runtime.testing.apiserver.schema.cel.values import (
    Duration,
    EvaluationError,
    Optional,
    Timestamp,
    typed,
)

__all__ = [
    "CompileError",
    "Duration",
    "EvaluationError",
    "Optional",
    "Program",
    "Timestamp",
    "compile_expression",
    "typed",
]
