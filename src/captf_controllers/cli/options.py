"""The manager's options: typed, validated together, one error for all that is wrong."""

from __future__ import annotations

from dataclasses import dataclass, field

from captf_controllers.api.images import is_image_reference
from captf_runtime.election import ElectionTimes
from captf_runtime.serving import TlsOptions, parse_bind_address


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerOptions:
    """Everything that the command line of ``captf-manager`` sets. Durations are seconds."""

    runner_image: str = ""
    namespace: str = ""
    watch_filter: str = ""
    sync_period: float = 600.0
    concurrency: dict[str, int] = field(default_factory=dict)
    health_addr: str = ":9440"
    profiler_address: str = ""
    kubeconfig: str = ""
    leader_elect: bool = False
    lease_duration: float = 15.0
    renew_deadline: float = 10.0
    retry_period: float = 2.0
    leader_elect_namespace: str = ""
    diagnostics_address: str = ":8443"
    insecure_diagnostics: bool = False
    tls_min_version: str = "VersionTLS12"
    tls_cipher_suites: tuple[str, ...] = ()
    tls_curve_preferences: tuple[int, ...] = ()
    webhook_port: int = 9443
    webhook_cert_dir: str = "/tmp/k8s-webhook-server/serving-certs/"
    webhook_cert_name: str = "tls.crt"
    webhook_key_name: str = "tls.key"
    runner_events: bool = True
    drift_default_interval: float = 1800.0
    cluster_operation_gate: bool = True
    max_active_jobs: int = 200
    cluster_max_active_jobs: int = 20
    state_backups: int = 5

    @property
    def election_times(self) -> ElectionTimes:
        return ElectionTimes(self.lease_duration, self.renew_deadline, self.retry_period)

    @property
    def tls(self) -> TlsOptions:
        return TlsOptions(self.tls_min_version, self.tls_cipher_suites, self.tls_curve_preferences)


def problems(options: ManagerOptions) -> list[str]:
    """Every violation, each naming the flag and its value; empty when all is well."""
    found: list[str] = []
    for kind, count in options.concurrency.items():
        if count < 1:
            found.append(f"--{kind}-concurrency={count}: must be at least 1")
    for flag, count in (
        ("max-active-jobs", options.max_active_jobs),
        ("cluster-max-active-jobs", options.cluster_max_active_jobs),
        ("state-backups", options.state_backups),
    ):
        if count < 0:
            found.append(f"--{flag}={count}: must not be negative")
    for flag, seconds in (
        ("sync-period", options.sync_period),
        ("drift-default-interval", options.drift_default_interval),
    ):
        if seconds <= 0:
            found.append(f"--{flag}={seconds:g}s: must be greater than 0")
    if not options.runner_image:
        found.append("--runner-image: set it or the environment variable CAPTF_MANAGER_IMAGE")
    elif not is_image_reference(options.runner_image):
        found.append(f"--runner-image={options.runner_image}: is not a valid image reference")
    if not 0 <= options.webhook_port <= 65535:
        found.append(
            f"--webhook-port={options.webhook_port}: must be between 1 and 65535, or 0 for no webhooks"
        )
    for name, address in (
        ("health-addr", options.health_addr),
        ("profiler-address", options.profiler_address),
        ("diagnostics-address", options.diagnostics_address),
    ):
        try:
            parse_bind_address(address)
        except ValueError as error:
            found.append(f"--{name}={address}: {error}")
    found += [f"--tls-{name}={value}: {why}" for name, value, why in options.tls.problems()]
    if options.leader_elect:
        try:
            _ = options.election_times
        except ValueError as error:
            found.append(f"--leader-elect-lease-duration, -renew-deadline, -retry-period: {error}")
    return found
