"""The whole product, end to end: real Terraform, real processes, on the embedded and the real API server."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hack.tour import manifests
from hack.tour.stage import Stage
from hack.tour.story import MACHINES, Story
from hack.tour.waiting import wait_until
from tests.e2e.history import History, Operation
from tests.e2e.scene import PATIENCE

from captf_controllers.api.kinds import CLUSTER, MACHINE, TERRAFORM_CLUSTER, TERRAFORM_MACHINE
from captf_runtime.testing.waiting import eventually

pytestmark = [pytest.mark.terraform, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def no_manager_stays(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each test starts a manager of its own."""
    names = {"embedded", "stage"} & set(request.fixturenames)
    stages: list[Stage] = [request.getfixturevalue(name) for name in names]
    yield
    for stage in stages:
        stage.stop_manager()


def live(stage: Stage, namespace: str) -> Story:
    story = Story(stage.client, namespace=namespace, patience=PATIENCE, alive=stage.check_manager)
    story.prepare()
    populate(story)
    return story


def populate(story: Story) -> None:
    story.create_cluster()
    for name in MACHINES:
        story.create_machine(name)


def bring_up(story: Story) -> None:
    story.wait_ready(TERRAFORM_CLUSTER, manifests.CLUSTER_NAME)
    story.report_infrastructure()
    for name in MACHINES:
        story.wait_ready(TERRAFORM_MACHINE, name)


def take_down(story: Story) -> None:
    story.delete(TERRAFORM_CLUSTER, manifests.CLUSTER_NAME)
    for name in MACHINES:
        story.delete(TERRAFORM_MACHINE, name)
    for name in MACHINES:
        story.wait_gone(TERRAFORM_MACHINE, name)
        story.delete(MACHINE, name)
    story.wait_gone(TERRAFORM_CLUSTER, manifests.CLUSTER_NAME)
    story.delete(CLUSTER, manifests.CLUSTER_NAME)


def test_a_cluster_and_its_machines_come_and_go(stage: Stage) -> None:
    stage.start_manager()
    story = live(stage, "whole-life")
    bring_up(story)
    machine = story.client.get(TERRAFORM_MACHINE, MACHINES[0], story.namespace)
    cluster = story.client.get(TERRAFORM_CLUSTER, manifests.CLUSTER_NAME, story.namespace)
    assert machine["spec"]["providerID"] == f"noop:///{story.namespace}/{MACHINES[0]}"
    assert cluster["spec"]["controlPlaneEndpoint"]["port"] == 6443
    take_down(story)
    assert story.wait_clean(seconds=PATIENCE) == []
    assert stage.stop_manager() == 0
    log = stage.manager_log()
    for told in ("Job created", "Job finished", "condition changed", "object released"):
        assert told in log, f"the log of a normal life does not tell: {told}"


@pytest.mark.parametrize(
    "moment",
    ["cluster apply created", "cluster apply running", "machine apply", "destroy created", "destroy ended"],
)
def test_a_killed_manager_goes_on_where_it_was(embedded: Stage, moment: str) -> None:
    """SIGKILL at several points: the next one finishes, no operation runs twice, nothing is left."""
    stage = embedded
    stage.start_manager()
    story = Story(
        stage.client,
        namespace=f"killed-at-{moment.replace(' ', '-')}",
        patience=PATIENCE,
        alive=stage.check_manager,
    )
    story.prepare()
    with History(stage.client, story.namespace) as history:
        populate(story)

        def found(op: str, kind: str) -> list[Operation]:
            return [
                operation
                for operation in history.operations()
                if (operation.job.op, operation.job.owner_kind) == (op, kind)
            ]

        def created(op: str, kind: str) -> bool:
            return bool(found(op, kind))

        def ran(op: str, kind: str) -> bool:
            return any(operation.ran for operation in found(op, kind))

        def ended(op: str, kind: str) -> bool:
            return any(operation.job.is_finished for operation in found(op, kind))

        def kill_and_restart() -> None:
            stage.kill_manager()
            stage.start_manager()

        if moment == "cluster apply created":
            wait_until(lambda: created("apply", "TerraformCluster"), moment, seconds=PATIENCE, every=0.01)
            kill_and_restart()
        elif moment == "cluster apply running":
            wait_until(lambda: ran("apply", "TerraformCluster"), moment, seconds=PATIENCE, every=0.01)
            stage.kill_manager()
            wait_until(lambda: ended("apply", "TerraformCluster"), moment, seconds=PATIENCE)
            stage.start_manager()
        if moment == "machine apply":
            story.wait_ready(TERRAFORM_CLUSTER, manifests.CLUSTER_NAME)
            story.report_infrastructure()
            wait_until(lambda: created("apply", "TerraformMachine"), moment, seconds=PATIENCE, every=0.01)
            kill_and_restart()
        bring_up(story)
        if moment.startswith("destroy"):
            for name in MACHINES:
                story.delete(TERRAFORM_MACHINE, name)
            wait_until(lambda: created("destroy", "TerraformMachine"), moment, seconds=PATIENCE, every=0.01)
            if moment == "destroy ended":
                wait_until(lambda: ran("destroy", "TerraformMachine"), moment, seconds=PATIENCE, every=0.01)
            stage.kill_manager()
            if moment == "destroy ended":
                wait_until(lambda: ended("destroy", "TerraformMachine"), moment, seconds=PATIENCE)
            stage.start_manager()
        take_down(story)
        assert story.wait_clean(seconds=PATIENCE) == []
    operations = Counter(
        (operation.job.owner_kind, operation.job.owner_name, operation.job.op)
        for operation in history.operations()
        if operation.ran
    )
    objects = [
        ("TerraformCluster", manifests.CLUSTER_NAME),
        *(("TerraformMachine", name) for name in MACHINES),
    ]
    assert operations == Counter((*obj, op) for obj in objects for op in ("apply", "destroy"))


def test_an_invalid_object_is_refused_with_its_field(stage: Stage) -> None:
    """The API server itself names the path of what is wrong."""
    story = Story(stage.client, namespace="refused")
    story.prepare()

    def refused(spec: str) -> str:
        manifest = (
            "apiVersion: infrastructure.cluster.x-k8s.io/v1alpha1\nkind: TerraformCluster\n"
            f"metadata: {{name: bad, namespace: refused}}\nspec: {spec}\n"
        )
        done = subprocess.run(
            [
                "kubectl",
                f"--kubeconfig={stage.kubeconfig}",
                "create",
                "--dry-run=server",
                "--validate=strict",
                "--filename=-",
            ],
            input=manifest,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        return done.stderr if done.returncode else ""

    assert "spec.source" in refused('{source: {image: ""}, identityRef: {name: x}}')
    assert "spec.jobs" in refused(
        "{source: {image: x}, identityRef: {name: x}, jobs: {activeDeadlineSeconds: soon}}"
    )
    # A server that knows no field validation leaves this to kubectl, which has the fields from the OpenAPI document;
    # they are in there some time after the definitions were installed.
    eventually(
        lambda: "colour" in refused("{source: {image: x}, identityRef: {name: x}, colour: red}"), timeout=60
    )


def test_the_tour_ends_by_itself_and_leaves_nothing(tmp_path: Path) -> None:
    """``make run`` as a user runs it: status 0, no process, no temporary file."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "hack.tour"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (
        "no Terraform object, Job, Pod, Secret, Lease, ServiceAccount or RoleBinding of CAPTF" in done.stdout
    )
    for first, then in (
        (f"TerraformCluster {manifests.CLUSTER_NAME}: Ready=True", "Its machines"),
        *((f"TerraformMachine {name}: Ready=True", "everything is Ready") for name in MACHINES),
    ):
        assert first in done.stdout.partition(then)[0], f"{first} is told before {then}"
    assert list(tmp_path.iterdir()) == []


def test_the_tour_runs_a_module_of_ones_own(tmp_path: Path) -> None:
    """With what a person's own init and apply left in its folder."""
    module = tmp_path / "module"
    shutil.copytree(ROOT / "examples" / "modules" / "machine", module)
    main = module / "main.tf"
    main.write_text(main.read_text().replace("noop:///", "own:///"))
    (module / ".terraform").mkdir()
    (module / ".terraform" / "environment").write_text("elsewhere")
    (module / "terraform.tfstate").write_text("{}")
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    done = subprocess.run(
        [sys.executable, "-m", "hack.tour", "--machine-module", str(module)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"provider ID own:///{manifests.TEAM}/{MACHINES[0]}" in done.stdout


def test_the_tour_without_a_runtime_says_what_it_looked_for(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "PATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "hack.tour"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "neither terraform nor tofu is on the PATH" in done.stderr
    assert "--runtime PATH" in done.stderr
