"""Putting the manager together: caches, controllers, sweep, servers."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

from captf_controllers import __version__
from captf_controllers.api import names
from captf_controllers.api.kinds import TERRAFORM_CLUSTER, TERRAFORM_MACHINE, TERRAFORM_MACHINE_POOL
from captf_controllers.cli.build import CONTRACT, commit
from captf_controllers.cli.job_counter import count_jobs
from captf_controllers.cli.options import ManagerOptions
from captf_controllers.cli.sweeper import Sweeper
from captf_controllers.jobs.slots import JobSlots
from captf_controllers.kinds.controllers import (
    Caches,
    identity_controller,
    machine_template_controller,
    source_watches,
    workload_controllers,
)
from captf_controllers.observability.events import CONTROLLER
from captf_controllers.observability.metrics import Metrics
from captf_controllers.reconcile.environment import Environment, Options
from captf_controllers.state.cache import StateCache
from captf_controllers.webhooks.validators import register_all
from captf_runtime.cache import Cache
from captf_runtime.client import Client
from captf_runtime.client.observe import RequestMetrics
from captf_runtime.clock import SYSTEM_CLOCK, Clock
from captf_runtime.election import default_identity
from captf_runtime.events import Recorder
from captf_runtime.manager import (
    Diagnostics,
    Group,
    LeaderElectionConfig,
    Manager,
    Profiler,
    serving_certificate,
)
from captf_runtime.metrics import Metrics as RuntimeMetrics
from captf_runtime.serving import HttpServer, parse_bind_address
from captf_runtime.webhook import WebhookServer

#: Connections beside the workers': informer lists, sweeps, probes.
SPARE_CONNECTIONS = 8
SERVICE_ACCOUNT_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")

#: There is no flag for it.
DIAGNOSTICS_CERTIFICATES = Path("/tmp/k8s-metrics-server/serving-certs")


class SetupError(Exception):
    """A step of the set-up failed; the message says which and what to do."""


def own_namespace(options: ManagerOptions) -> str:
    """The namespace of the election Lease: the flag, the pod's own, else the environment."""
    if options.leader_elect_namespace:
        return options.leader_elect_namespace
    try:
        return SERVICE_ACCOUNT_NAMESPACE.read_text().strip()
    except OSError:
        return os.environ.get("POD_NAMESPACE", "")


def build_manager(options: ManagerOptions, *, clock: Clock = SYSTEM_CLOCK) -> Manager:
    """Build the manager; nothing runs yet.

    Raises SetupError when leader election has no namespace, and what the client raises without a usable
    configuration.
    """
    workers = sum(options.concurrency.values())
    runtime_metrics = RuntimeMetrics(process=True)
    client = Client.from_config(
        kubeconfig=options.kubeconfig or None,
        user_agent=CONTROLLER,
        pool_size=workers + SPARE_CONNECTIONS,
        clock=clock,
        observer=RequestMetrics(runtime_metrics),
    )
    identity = default_identity()
    recorder = Recorder(
        client.dedicated(pool_size=2),
        controller=CONTROLLER,
        instance=identity,
        metrics=runtime_metrics,
        clock=clock,
    )
    caches = Caches(
        main=_cache(client, options, runtime_metrics, clock),
        variables=_cache(client, options, runtime_metrics, clock),
        namespace=options.namespace,
    )
    metrics = Metrics(runtime_metrics.registry)
    slots = JobSlots(clock)
    metrics.serve_active_jobs(lambda: slots.active() if caches.main.has_synced() else None)
    metrics.build_info(__version__, commit(), CONTRACT)
    count_jobs(slots, caches.main, options.namespace)
    env = Environment(
        api=client,
        cache=caches.main,
        recorder=recorder,
        metrics=metrics,
        clock=clock,
        options=_pass_options(options),
        slots=slots,
        states=StateCache(),
    )
    manager = Manager(
        client=client,
        caches={"main": caches.main, "variables": caches.variables},
        leader_election=_election(options, client, identity),
        health_probe_bind_address=options.health_addr,
        metrics_bind_address=options.diagnostics_address if options.insecure_diagnostics else "",
        metrics=runtime_metrics,
        recorder=recorder,
        clock=clock,
    )
    concurrency = {
        TERRAFORM_CLUSTER: options.concurrency["terraformcluster"],
        TERRAFORM_MACHINE: options.concurrency["terraformmachine"],
        TERRAFORM_MACHINE_POOL: options.concurrency["terraformmachinepool"],
    }
    workloads = workload_controllers(env, caches, concurrency)
    identities = identity_controller(env, caches, options.concurrency["terraformclusteridentity"])
    templates = machine_template_controller(env, caches, options.concurrency["terraformmachinetemplate"])
    for controller in (*workloads, identities, templates):
        manager.add(controller)
    manager.add(source_watches(env, client, caches, identities, workloads), name="identity-sources")
    _serve_webhooks(manager, options, client, runtime_metrics, clock)
    _serve_diagnostics(manager, options, client, clock)
    manager.add(Sweeper(client, options.sync_period, options.namespace, clock), name="orphan-sweep")
    return manager


def manager_username() -> str:
    """The manager's own user name, empty when the environment does not tell."""
    namespace, account = os.environ.get("POD_NAMESPACE", ""), os.environ.get("SERVICE_ACCOUNT_NAME", "")
    return f"system:serviceaccount:{namespace}:{account}" if namespace and account else ""


def _serve_webhooks(
    manager: Manager, options: ManagerOptions, client: Client, metrics: RuntimeMetrics, clock: Clock
) -> None:
    """Serve admission on every replica. Without a certificate there is no server: that fails the start."""
    if options.webhook_port == 0:
        return
    try:
        server = WebhookServer(
            f":{options.webhook_port}",
            options.webhook_cert_dir,
            certificate_name=options.webhook_cert_name,
            key_name=options.webhook_key_name,
            minimum_version=options.tls.minimum_version,
            configure=options.tls.configure,
            metrics=metrics,
            clock=clock,
        )
    except OSError as error:
        raise SetupError(
            f"the webhook server has no usable certificate in {options.webhook_cert_dir} ({error.strerror}): put "
            f"{options.webhook_cert_name} and {options.webhook_key_name} there, or switch it off with --webhook-port=0"
        ) from error
    register_all(server, client, manager_username())
    manager.add(server, group=Group.WEBHOOKS, name="webhooks")
    manager.add_ready_check("webhook", server.check_serving)


def _serve_diagnostics(manager: Manager, options: ManagerOptions, client: Client, clock: Clock) -> None:
    """Serve metrics, profiler and log level to those who may; in the clear the manager itself serves metrics."""
    if not options.insecure_diagnostics and parse_bind_address(options.diagnostics_address) is not None:
        try:
            certificate = serving_certificate(
                DIAGNOSTICS_CERTIFICATES, socket.gethostname(), options.tls, clock=clock
            )
        except OSError as error:
            raise SetupError(
                f"the certificate in {DIAGNOSTICS_CERTIFICATES} cannot be used ({error}): mend tls.crt and tls.key, or "
                "remove them for a certificate made at start"
            ) from error
        diagnostics = Diagnostics(
            options.diagnostics_address,
            reviewer=client.dedicated(pool_size=2, suffix="diagnostics"),
            metrics_app=manager.serve_metrics,
            certificate=certificate,
            metrics=manager.metrics,
            clock=clock,
        )
        manager.add(diagnostics, group=Group.HTTP, name="diagnostics")
    if parse_bind_address(options.profiler_address) is not None:
        profiler = HttpServer(
            Profiler(), options.profiler_address, component="profiler", metrics=manager.metrics
        )
        manager.add(profiler, group=Group.HTTP, name="profiler")


def run_manager(options: ManagerOptions, stop: threading.Event | None = None) -> int:
    """Build the manager and run it until it stops; the exit status of the process."""
    return build_manager(options).run(stop)


def _cache(client: Client, options: ManagerOptions, metrics: RuntimeMetrics, clock: Clock) -> Cache:
    return Cache(
        client,
        resync_period=options.sync_period,
        clock=clock,
        metrics=metrics,
    )


def _pass_options(options: ManagerOptions) -> Options:
    return Options(
        runner_image=options.runner_image,
        runner_events=options.runner_events,
        watch_filter=options.watch_filter,
        drift_default_interval=options.drift_default_interval,
        cluster_operation_gate=options.cluster_operation_gate,
        max_active_jobs=options.max_active_jobs,
        cluster_max_active_jobs=options.cluster_max_active_jobs,
        state_backups=options.state_backups,
    )


def _election(options: ManagerOptions, client: Client, identity: str) -> LeaderElectionConfig | None:
    if not options.leader_elect:
        return None
    namespace = own_namespace(options)
    if not namespace:
        raise SetupError(
            "leader election needs a namespace for its Lease and this process runs in none: set "
            "--leader-elect-namespace or POD_NAMESPACE"
        )
    return LeaderElectionConfig(
        namespace=namespace,
        name=names.ELECTION_LEASE,
        client=client.dedicated(pool_size=2, suffix="leader-election"),
        identity=identity,
        times=options.election_times,
    )
