"""The two files of a Terraform root module: `main.tf.json` and `terraform.tfvars.json`. Pure.

Equal inputs give equal bytes. The root depends on names and sensitivity only, never on a value.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from captf_controllers.api.canonical import Json, canonical_any_number, indented
from captf_controllers.api.kinds import Role

from .contract import CONTRACT_INPUTS, CONTRACT_OUTPUTS
from .variables import shown_name, variable_name_problem

MAIN_FILE: Final = "main.tf.json"
TFVARS_FILE: Final = "terraform.tfvars.json"
MODULE_SOURCE: Final = "../../module"
"""The module as seen from the root: the root is two directories below the module's parent."""

MAX_INPUTS_BYTES: Final = 1_000_000
"""Largest size of both files; the API server takes a Secret of little more."""


class RenderError(ValueError):
    """Inputs that do not keep the contract reached the renderer; the message quotes no value."""


@dataclass(frozen=True, slots=True)
class Files:
    """The two files of a root module."""

    main: bytes = field(repr=False)
    tfvars: bytes = field(repr=False)

    @property
    def size(self) -> int:
        """Bytes of both files."""
        return len(self.main) + len(self.tfvars)

    def secret_data(self) -> dict[str, str]:
        """Return the files as the data of a Secret."""
        return {
            MAIN_FILE: base64.b64encode(self.main).decode(),
            TFVARS_FILE: base64.b64encode(self.tfvars).decode(),
        }


BACKEND_ONLY: Final = Files(
    main=indented({"terraform": {"backend": {"kubernetes": {}}}}).encode(), tfvars=b"{}\n"
)
"""The root of a restore: a backend and nothing else."""


def too_large(files: Files) -> bool:
    """Say whether the files are too large for a Secret."""
    return files.size > MAX_INPUTS_BYTES


def render(
    role: Role,
    inputs: Mapping[str, Json],
    variables: Mapping[str, Json] | None = None,
    sensitive: Collection[str] = (),
) -> Files:
    """Render the root module of a role.

    Args:
        role: the module's role.
        inputs: every contract input of the role.
        variables: merged user variables, None or empty without any.
        sensitive: names of the variables that are sensitive.

    Raises:
        RenderError: an input is missing or foreign to the role, a variable must not be used, or the
            bootstrap data is not base64.
    """
    variables = variables or {}
    _check(role, inputs, variables)
    return Files(
        main=indented(_main(role, variables, sensitive)).encode(),
        tfvars=indented(_tfvars(role, inputs, variables)).encode(),
    )


def _check(role: Role, inputs: Mapping[str, Json], variables: Mapping[str, Json]) -> None:
    declared = CONTRACT_INPUTS[role]
    for name in declared:
        if name not in inputs:
            raise RenderError(f"contract input {name} of the role {role} is missing")
    for name in inputs:
        if name not in declared:
            raise RenderError(f"{shown_name(name)} is no contract input of the role {role}")
    for name, value in variables.items():
        problem = variable_name_problem(role, name)
        if problem is not None:
            raise RenderError(f"variable {shown_name(name)} {problem}")
        canonical_any_number(value)
    data = inputs.get("bootstrap_data")
    if "bootstrap_data" in declared:
        try:
            if not isinstance(data, str):
                raise RenderError("contract input bootstrap_data is not a string")
            if data:
                binascii.a2b_base64(data, strict_mode=True)
        except (binascii.Error, ValueError) as error:
            if isinstance(error, RenderError):
                raise
            raise RenderError("contract input bootstrap_data is not base64") from None


def _main(role: Role, variables: Mapping[str, Json], sensitive: Collection[str]) -> Json:
    declared: dict[str, Json] = {}
    for name, variable in CONTRACT_INPUTS[role].items():
        block: dict[str, Json] = {"type": variable.type}
        if variable.nullable:
            block["default"] = None
        if variable.sensitive:
            block["sensitive"] = True
        declared[name] = block
    for name in variables:
        declared[name] = {"sensitive": True} if name in sensitive else {}
    call: dict[str, Json] = {"source": MODULE_SOURCE}
    for name in declared:
        call[name] = f"${{var.{name}}}"
    outputs: dict[str, Json] = {
        name: {"value": f"${{module.role.{name}}}", "sensitive": True} for name in CONTRACT_OUTPUTS[role]
    }
    return {
        "terraform": {"backend": {"kubernetes": {}}},
        "variable": _sorted(declared),
        "module": {"role": _sorted(call)},
        "output": _sorted(outputs),
    }


def _tfvars(role: Role, inputs: Mapping[str, Json], variables: Mapping[str, Json]) -> Json:
    ordered = {name: inputs[name] for name in CONTRACT_INPUTS[role]}
    return _sorted({**ordered, **variables}) if variables else ordered


def _sorted(items: Mapping[str, Json]) -> dict[str, Json]:
    return {name: items[name] for name in sorted(items)}
