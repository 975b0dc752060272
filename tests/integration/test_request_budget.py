"""How many requests the manager makes, and which an unchanged object costs.

What a manager reads from its informers is no request, and `World` answers such reads without one.
"""

from __future__ import annotations

from collections import Counter

from tests.deletion_case import Case
from tests.world import IDENTITY, OPERATOR, TEAM

from captf_controllers.api import names

#: Requests for one object's whole life: created, applied, Ready, deleted, destroyed, gone. To be lowered when
#: a change earns it, and raised only for a reason. (One of them reads the state after a destroy: was it that one?)
LIFE_CEILING = {"TerraformCluster": 161, "TerraformMachine": 146, "TerraformMachinePool": 156}


def test_a_whole_life_stays_within_its_budget(case: Case) -> None:
    case.add()
    case.world.forget_requests()
    case.world.provision(case.kind, case.name)
    case.delete(keep=False)
    case.settle()
    case.end()
    case.settle()
    assert case.world.find(case.kind, case.name) is None
    found = Counter(
        f"{entry.verb} {entry.resource}{'/' if entry.subresource else ''}{entry.subresource}"
        for entry in case.world.requests()
    )
    listed = "\n".join(f"{count:4} {what}" for what, count in sorted(found.items()))
    assert found.total() <= LIFE_CEILING[case.kind], f"{found.total()} requests:\n{listed}"


def test_an_unchanged_ready_object_is_read_and_never_written(case: Case) -> None:
    """Only what may not come from a cache: each read is one that the order of a pass demands."""
    case.provision()
    case.settle()
    case.world.forget_requests()
    case.reconcile()
    durable, applied = case.inputs_secrets
    demanded = [
        # The records of its inputs; the lock and the metadata of its state, whose content is remembered.
        f"get secrets {TEAM}/{durable}",
        f"get secrets {TEAM}/{applied}",
        f"get leases {TEAM}/{names.state_lock_lease(case.suffix)}",
        f"list secrets {TEAM}/ {names.state_selector(case.suffix)}",
        # Whether the identity still allows its use, and what Jobs will need of it.
        f"get terraformclusteridentities /{IDENTITY}",
        f"get secrets {OPERATOR}/cloud-credentials",
        f"get secrets {TEAM}/{names.credential_mirror(IDENTITY)}",
        f"get serviceaccounts {TEAM}/captf-runner",
        f"get rolebindings {TEAM}/captf-runner",
    ]
    if case.kind == "TerraformMachinePool":
        # A pool is applied again when the cluster's exports or its bootstrap data have changed.
        cluster = names.state_suffix(TEAM, "TerraformCluster", case.cluster)
        demanded += [
            f"list secrets {TEAM}/ {names.state_selector(cluster)}",
            f"get secrets {TEAM}/{case.name}-bootstrap",
        ]
    asked = [
        f"{entry.verb} {entry.resource} {entry.namespace}/{entry.name} "
        f"{dict(entry.query).get('labelSelector', '')}".rstrip()
        for entry in case.world.requests()
    ]
    assert asked == demanded
