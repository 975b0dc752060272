"""``make run``: the tour, told step by step, checked at the end."""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path
from types import FrameType

import click

from captf_controllers.api.kinds import CLUSTER, MACHINE, TERRAFORM_CLUSTER, TERRAFORM_MACHINE, WORKLOAD_KINDS
from captf_controllers.api.labels import OP, OWNER_NAME
from captf_runtime.client.errors import ApiError
from captf_runtime.objects import JOB, POD, SECRET, labels_of, name_of
from hack.tour import manifests
from hack.tour.narrator import Narrator
from hack.tour.observer import Observer
from hack.tour.stage import ManagerEnded, RuntimeMissing, Stage, find_runtime
from hack.tour.story import MACHINES, Story
from hack.tour.waiting import TimedOut


@click.command()
@click.option(
    "--keep", is_flag=True, help="Leave everything running after it is Ready, for a person with kubectl."
)
@click.option(
    "--kubeconfig", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="A real API server."
)
@click.option("--runtime", default="", metavar="PATH", help="The terraform or tofu binary to use.")
@click.option(
    "--cluster-module",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A cluster module to run instead of the example.",
)
@click.option(
    "--machine-module",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A machine module to run instead of the example.",
)
def main(
    keep: bool,
    kubeconfig: Path | None,
    runtime: str,
    cluster_module: Path | None,
    machine_module: Path | None,
) -> None:
    """Bring up a cluster and two machines by real Terraform, delete them, prove that nothing is left."""
    try:
        binary = find_runtime(runtime)
    except RuntimeMissing as error:
        click.echo(f"captf tour: {error}", err=True)
        sys.exit(2)
    signal.signal(signal.SIGTERM, _interrupt)
    narrator = Narrator()
    chosen = {manifests.CLUSTER_IMAGE: cluster_module, manifests.MACHINE_IMAGE: machine_module}
    modules = {image: module for image, module in chosen.items() if module is not None}
    with Stage(runtime=binary, kubeconfig=kubeconfig, modules=modules) as stage:
        try:
            status = _tell(narrator, stage, binary, keep)
        except KeyboardInterrupt:
            narrator.say("stopped; putting everything away")
            status = 130
    sys.exit(status)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _tell(narrator: Narrator, stage: Stage, binary: Path, keep: bool) -> int:
    story = Story(stage.client, alive=stage.check_manager)
    narrator.chapter("A Kubernetes of its own" if stage.server is not None else "A Kubernetes that was there")
    narrator.say(f"API server at {stage.client.host}")
    narrator.say(
        f"look in from another terminal: kubectl --kubeconfig {stage.kubeconfig} -n {story.namespace} get cluster-api"
    )
    narrator.say(f"Jobs run as processes of this machine, with {binary}")
    story.prepare()
    stage.start_manager()
    narrator.say("captf-manager started")
    try:
        with Observer(stage.client, story.namespace, narrator) as observer:
            _bring_up(narrator, observer, story)
            if keep:
                _wait_for_person(narrator, stage, story)
                return 0
            _take_down(narrator, story)
        return _check(narrator, stage, story)
    except (TimedOut, ManagerEnded, ApiError) as error:
        narrator.say(str(error), style="bold red")
        _explain(narrator, stage, story)
        return 1


def _bring_up(narrator: Narrator, observer: Observer, story: Story) -> None:
    narrator.chapter("A cluster")
    story.create_cluster()
    narrator.say(f"created Cluster and TerraformCluster {manifests.CLUSTER_NAME}")
    for name in MACHINES:
        story.create_machine(name)
        narrator.say(f"created Machine and TerraformMachine {name}; it waits for the cluster")
    story.wait_ready(TERRAFORM_CLUSTER, manifests.CLUSTER_NAME)
    observer.look()
    narrator.chapter("Its machines")
    story.report_infrastructure()
    narrator.say("Cluster API sees the infrastructure of the cluster as provisioned")
    for name in MACHINES:
        story.wait_ready(TERRAFORM_MACHINE, name)
    observer.look()
    narrator.say("everything is Ready", style="bold green")


def _take_down(narrator: Narrator, story: Story) -> None:
    narrator.chapter("The way back")
    story.delete(TERRAFORM_CLUSTER, manifests.CLUSTER_NAME)
    narrator.say("deleted the TerraformCluster: it waits for its machines")
    for name in MACHINES:
        story.delete(TERRAFORM_MACHINE, name)
        narrator.say(f"deleted TerraformMachine {name}")
    for name in MACHINES:
        story.wait_gone(TERRAFORM_MACHINE, name)
        story.delete(MACHINE, name)
        story.delete(SECRET, f"{name}-bootstrap")
    story.wait_gone(TERRAFORM_CLUSTER, manifests.CLUSTER_NAME)
    story.delete(CLUSTER, manifests.CLUSTER_NAME)


def _check(narrator: Narrator, stage: Stage, story: Story) -> int:
    narrator.chapter("What is left")
    rest = story.wait_clean()
    if rest:
        narrator.say(f"still there: {', '.join(rest)}", style="bold red")
        _explain(narrator, stage, story)
        return 1
    narrator.say(
        "no Terraform object, Job, Pod, Secret, Lease, ServiceAccount or RoleBinding of CAPTF", style="green"
    )
    status = stage.stop_manager()
    narrator.say(f"captf-manager ended with status {status}", style="green" if status == 0 else "red")
    return 0 if status == 0 else 1


def _wait_for_person(narrator: Narrator, stage: Stage, story: Story) -> None:
    narrator.chapter("Yours")
    narrator.say(f"export KUBECONFIG={stage.kubeconfig}")
    narrator.say(
        f"{Path(sys.executable).with_name('captf')} why terraformmachine {MACHINES[0]} -n {story.namespace}"
    )
    narrator.say("everything keeps running; Ctrl-C puts it away")
    threading.Event().wait()


def _explain(narrator: Narrator, stage: Stage, story: Story) -> None:
    """Show what a person would look at first: the objects' conditions and the Jobs' logs."""
    for kind in WORKLOAD_KINDS:
        for obj in stage.client.list(kind, story.namespace).items:
            narrator.plain(f"{kind.kind} {name_of(obj)}:")
            for item in (obj.get("status") or {}).get("conditions") or []:
                narrator.plain(
                    f"  {item['type']}={item['status']}/{item['reason']} {item.get('message', '')}"
                )
    for job in stage.client.list(JOB, story.namespace).items:
        narrator.plain(f"Job {name_of(job)} ({labels_of(job).get(OP)} of {labels_of(job).get(OWNER_NAME)}):")
        for pod in stage.client.list(POD, story.namespace, label_selector=f"job-name={name_of(job)}").items:
            lines = stage.kubelet.log(story.namespace, name_of(pod), "source", tail_lines=40)
            narrator.plain(b"".join(lines or ()).decode(errors="replace"))
    narrator.plain("captf-manager:")
    narrator.plain("\n".join(stage.manager_log().splitlines()[-40:]))


if __name__ == "__main__":
    main()
