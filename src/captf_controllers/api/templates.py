"""Specs and statuses of the three template kinds."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from captf_runtime.objects import Object

from .cluster import TerraformClusterSpec
from .machine import TerraformMachineSpec
from .machinepool import TerraformMachinePoolSpec
from .schema import Wire, core, doc, items, text
from .workspace import Condition

Architecture: TypeAlias = Literal["amd64", "arm64", "s390x", "ppc64le"]
CapacityOrigin: TypeAlias = Literal["Spec", "Image"]


class TemplateMetadata(Wire, frozen=True):
    """Labels and annotations of the objects made from a template."""

    labels: Annotated[dict[str, str] | None, doc("Labels of the objects.")] = None
    annotations: Annotated[dict[str, str] | None, doc("Annotations of the objects.")] = None


class ClusterTemplateResource(Wire, frozen=True):
    """What a TerraformCluster is made from."""

    spec: Annotated[TerraformClusterSpec, doc("Spec of the object; immutable.")]
    metadata: Annotated[TemplateMetadata | None, doc("Labels and annotations of the object.")] = None


class TerraformClusterTemplateSpec(Wire, frozen=True):
    """A template of TerraformClusters."""

    template: Annotated[
        ClusterTemplateResource, doc("What a TerraformCluster is made from.", minProperties=1)
    ]


class MachineTemplateResource(Wire, frozen=True):
    """What a TerraformMachine is made from."""

    spec: Annotated[TerraformMachineSpec, doc("Spec of the object; immutable.")]
    metadata: Annotated[TemplateMetadata | None, doc("Labels and annotations of the object.")] = None


class TerraformMachineTemplateSpec(Wire, frozen=True):
    """A template of TerraformMachines."""

    template: Annotated[
        MachineTemplateResource, doc("What a TerraformMachine is made from.", minProperties=1)
    ]
    capacity: Annotated[
        Object | None,
        core("Resources of a machine, for scaling from zero; never reaches machines.", "ResourceList"),
    ] = None


class MachinePoolTemplateResource(Wire, frozen=True):
    """What a TerraformMachinePool is made from."""

    spec: Annotated[TerraformMachinePoolSpec, doc("Spec of the object; immutable.")]
    metadata: Annotated[TemplateMetadata | None, doc("Labels and annotations of the object.")] = None


class TerraformMachinePoolTemplateSpec(Wire, frozen=True):
    """A template of TerraformMachinePools."""

    template: Annotated[
        MachinePoolTemplateResource, doc("What a TerraformMachinePool is made from.", minProperties=1)
    ]


class NodeInfo(Wire, frozen=True):
    """What a node made from the template is."""

    architecture: Annotated[Architecture | None, doc("Processor architecture.")] = None
    operating_system: Annotated[str | None, text("Operating system.", 1, 64)] = None


class CapacitySource(Wire, frozen=True):
    """Where the capacity comes from."""

    source: Annotated[CapacityOrigin, doc("Spec, or the image's label.")]
    image: Annotated[str | None, text("The image that was inspected.", 1, 512)] = None


class TerraformMachineTemplateStatus(Wire, frozen=True):
    """What is known of machines made from the template."""

    conditions: Annotated[
        tuple[Condition, ...] | None, items("What is observed of the template.", None, 32, keys=("type",))
    ] = None
    capacity: Annotated[
        Object | None, core("Resources of a machine, for scaling from zero.", "ResourceList")
    ] = None
    node_info: Annotated[NodeInfo | None, doc("What a node is.", minProperties=1)] = None
    capacity_source: Annotated[CapacitySource | None, doc("Where the capacity comes from.")] = None
