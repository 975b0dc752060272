"""``captf-manager``: the command line of the manager."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, cast

import click

from captf_controllers.cli.build import CONTRACT, commit, version_option
from captf_controllers.cli.durations import DURATION, format_duration
from captf_controllers.cli.options import ManagerOptions, problems
from captf_runtime import log

LOG_FORMATS = ("text", "json")
SECTIONS = ("generic", "leader election", "webhook", "runner", "diagnostics", "logs")


class SectionedOption(click.Option):
    """An option that knows under which heading ``--help`` lists it."""

    def __init__(self, *args: Any, section: str = "generic", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.section = section


class ManagerCommand(click.Command):
    """A command without positional arguments whose help is grouped by section."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        normalised = [_dashes(argument) for argument in args]
        rest = super().parse_args(ctx, normalised)
        return rest

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for section in SECTIONS:
            records = [
                record
                for param in self.get_params(ctx)
                if getattr(param, "section", "generic") == section
                and (record := param.get_help_record(ctx)) is not None
            ]
            if records:
                with formatter.section(section.capitalize()):
                    formatter.write_dl(records)


def _dashes(argument: str) -> str:
    """Underscores in a flag's name are dashes."""
    if not argument.startswith("--"):
        return argument
    name, equals, value = argument.partition("=")
    return name.replace("_", "-") + equals + value


def option(name: str, section: str, help: str, **kwargs: Any) -> Callable[[Any], Any]:
    """A flag of the manager."""
    return click.option(name, cls=SectionedOption, section=section, help=help, **kwargs)


def _boolean(name: str, section: str, default: bool, help: str) -> Callable[[Any], Any]:
    return option(
        name,
        section,
        help,
        type=bool,
        default=default,
        show_default=True,
        is_flag=False,
        flag_value="true",
    )


def _duration(name: str, section: str, seconds: float, help: str) -> Callable[[Any], Any]:
    return option(name, section, help, type=DURATION, default=format_duration(seconds), show_default=True)


def _count(name: str, default: int, help: str, section: str = "generic") -> Callable[[Any], Any]:
    return option(name, section, help, type=int, default=default, show_default=True)


def _text(name: str, section: str, default: str, help: str) -> Callable[[Any], Any]:
    return option(name, section, help, default=default, show_default=bool(default))


class _CommaSeparated(click.ParamType[tuple[Any, ...]]):
    """A list in one value: items separated by commas, empty ones dropped."""

    def __init__(self, item: click.ParamType[Any]) -> None:
        self._item = item
        self.name = f"{item.name},..."

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[Any, ...]:
        if isinstance(value, tuple):
            return value
        parts = (part.strip() for part in str(value).split(","))
        return tuple(self._item.convert(part, param, ctx) for part in parts if part)


TEXTS = _CommaSeparated(click.STRING)
NUMBERS = _CommaSeparated(click.INT)


def _join(ctx: click.Context, param: click.Parameter, values: tuple[tuple[Any, ...], ...]) -> tuple[Any, ...]:
    return tuple(item for value in values for item in value)


def _list(name: str, section: str, type: click.ParamType[Any], help: str) -> Callable[[Any], Any]:
    return option(name, section, help, type=type, multiple=True, callback=_join)


@click.command("captf-manager", cls=ManagerCommand, context_settings={"help_option_names": ["-h", "--help"]})
@version_option("captf-manager")
@click.argument("arguments", nargs=-1, metavar="")
@_text("--namespace", "generic", "", "Restrict every informer of a namespaced kind to one namespace.")
@_text(
    "--watch-filter",
    "generic",
    "",
    "Reconcile only objects whose label cluster.x-k8s.io/watch-filter has this value.",
)
@_duration("--sync-period", "generic", 600, "Resync interval of the informers and of the orphan sweep.")
@_count("--terraformcluster-concurrency", 10, "TerraformClusters reconciled at once.")
@_count("--terraformmachine-concurrency", 10, "TerraformMachines reconciled at once.")
@_count("--terraformmachinepool-concurrency", 10, "TerraformMachinePools reconciled at once.")
@_count("--terraformmachinetemplate-concurrency", 10, "TerraformMachineTemplates reconciled at once.")
@_count("--terraformclusteridentity-concurrency", 4, "TerraformClusterIdentities reconciled at once.")
@_text("--health-addr", "generic", ":9440", "Bind address of /healthz and /readyz; empty or 0 is off.")
@_text("--profiler-address", "generic", "", "Bind address of a separate profiler; empty is off.")
@_text(
    "--kubeconfig",
    "generic",
    "",
    "Kubeconfig file. Otherwise $KUBECONFIG, the in-cluster configuration, then $HOME/.kube/config.",
)
@_duration(
    "--drift-default-interval",
    "generic",
    1800,
    "Drift interval of an object that neither sets nor inherits one.",
)
@_boolean(
    "--cluster-operation-gate",
    "generic",
    True,
    "Keep a cluster's apply, destroy and restore apart from its machines' and pools'.",
)
@_count("--max-active-jobs", 200, "Jobs that run at once over all clusters; 0 is no limit.")
@_count(
    "--cluster-max-active-jobs",
    20,
    "The same for one TerraformCluster; spec.maxActiveJobs overrides it; 0 is no limit.",
)
@_count(
    "--state-backups", 5, "State backups kept for each object; 0 takes no new one and keeps what there is."
)
@_boolean("--leader-elect", "leader election", False, "Run the controllers on one replica at a time.")
@_duration(
    "--leader-elect-lease-duration",
    "leader election",
    15,
    "How long a candidate waits after the last renewal it saw before it takes over.",
)
@_duration(
    "--leader-elect-renew-deadline",
    "leader election",
    10,
    "How long a leader tries to renew before it gives up.",
)
@_duration("--leader-elect-retry-period", "leader election", 2, "Longest pause between attempts.")
@_text(
    "--leader-elect-namespace",
    "leader election",
    "",
    "Namespace of the Lease, outside of a cluster; in one it is the pod's own.",
)
@_count(
    "--webhook-port",
    9443,
    "Port of the webhook server; 0 serves none, for runs outside of a cluster.",
    "webhook",
)
@_text(
    "--webhook-cert-dir",
    "webhook",
    "/tmp/k8s-webhook-server/serving-certs/",
    "Directory of the serving certificate and key.",
)
@_text("--webhook-cert-name", "webhook", "tls.crt", "Name of the certificate file.")
@_text("--webhook-key-name", "webhook", "tls.key", "Name of the key file.")
@_text("--runner-image", "runner", "", "Image of the Jobs' init container; $CAPTF_MANAGER_IMAGE when unset.")
@_boolean("--runner-events", "runner", True, "Let runners post progress events.")
@_text("--diagnostics-address", "diagnostics", ":8443", "Bind address of the diagnostics endpoint.")
@_boolean(
    "--insecure-diagnostics",
    "diagnostics",
    False,
    "Serve /metrics in the clear, without authentication, and nothing else.",
)
@_text(
    "--tls-min-version",
    "diagnostics",
    "VersionTLS12",
    "Oldest TLS version of the webhooks and diagnostics: VersionTLS10, VersionTLS11, VersionTLS12 or VersionTLS13.",
)
@_list(
    "--tls-cipher-suites",
    "diagnostics",
    TEXTS,
    "Registered names of cipher suites, without effect on TLS 1.3; empty: the library's default.",
)
@_list(
    "--tls-curve-preferences",
    "diagnostics",
    NUMBERS,
    "Registered numbers of the groups for key exchange; empty: the library's default.",
)
@_text("--log-level", "logs", "", "debug, info, warning or error; $CAPTF_LOG_LEVEL, else info.")
@_text(
    "--log-format",
    "logs",
    "",
    "text or json; $CAPTF_LOG_FORMAT, else text on a terminal and json elsewhere.",
)
@click.pass_context
def main(ctx: click.Context, /, arguments: tuple[str, ...], **flags: Any) -> None:
    """Run Terraform and OpenTofu modules for Cluster API.

    Reconciles the Terraform* objects of a cluster: each change runs the object's module in a Job, keeps the
    state in Secrets and reports on the object.
    """
    if arguments:
        raise click.UsageError(
            f"captf-manager takes no positional arguments, got: {' '.join(arguments)}", ctx
        )
    found = _configure_log(flags["log_level"], flags["log_format"])
    logger = log.get_logger("captf-manager")
    for param in sorted(ctx.command.params, key=lambda param: str(param.name)):
        if param.name in flags:
            logger.info(f'FLAG: --{str(param.name).replace("_", "-")}="{_shown(param, flags[param.name])}"')
    options = _options(flags)
    found += problems(options)
    if found:
        raise click.UsageError("invalid flags:\n  " + "\n  ".join(found), ctx)
    from captf_controllers import __version__

    logger.info("starting", version=__version__, commit=commit(), contract=CONTRACT)
    _warn_without_username(logger)
    from captf_controllers.cli import wiring
    from captf_runtime.client.config import ConfigError

    try:
        status = wiring.run_manager(options)
    except (wiring.SetupError, ConfigError) as error:
        logger.error("the manager cannot start", err=error)
        status = 1
    sys.exit(status)


def _shown(param: click.Parameter, value: object) -> str:
    """A value as it would be typed."""
    if isinstance(value, bool):
        return str(value).lower()
    if param.type is DURATION and isinstance(value, float):
        return format_duration(value)
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _options(flags: dict[str, Any]) -> ManagerOptions:
    kinds = (
        "terraformcluster",
        "terraformmachine",
        "terraformmachinepool",
        "terraformmachinetemplate",
        "terraformclusteridentity",
    )
    values = {name: value for name, value in flags.items() if name not in ("log_level", "log_format")}
    concurrency = {kind: values.pop(f"{kind}_concurrency") for kind in kinds}
    values["runner_image"] = values["runner_image"] or os.environ.get("CAPTF_MANAGER_IMAGE", "")
    for short, flag in (
        ("lease_duration", "leader_elect_lease_duration"),
        ("renew_deadline", "leader_elect_renew_deadline"),
        ("retry_period", "leader_elect_retry_period"),
    ):
        values[short] = values.pop(flag)
    return ManagerOptions(concurrency=concurrency, **values)


def _configure_log(level: str, format: str) -> list[str]:
    """Set the log up, and tell what is wrong with its flags or with the variables behind them."""
    found = []
    level, named = _flag_or_variable("log-level", level)
    if level and level not in log.LEVELS:
        found.append(f"{named}={level}: must be one of {', '.join(log.LEVELS)}")
        level = ""
    format, named = _flag_or_variable("log-format", format)
    if format and format not in LOG_FORMATS:
        found.append(f"{named}={format}: must be one of {', '.join(LOG_FORMATS)}")
        format = ""
    chosen = "text" if format == "text" or (not format and sys.stderr.isatty()) else "json"
    log.configure(level or "info", cast("log.Format", chosen))
    return found


def _flag_or_variable(name: str, value: str) -> tuple[str, str]:
    """The value, and what sets it."""
    if value:
        return value, f"--{name}"
    variable = f"CAPTF_{name.upper().replace('-', '_')}"
    return os.environ.get(variable, ""), variable


def _warn_without_username(logger: log.Logger) -> None:
    if os.environ.get("POD_NAMESPACE") and os.environ.get("SERVICE_ACCOUNT_NAME"):
        return
    logger.warning(
        "POD_NAMESPACE or SERVICE_ACCOUNT_NAME is not set, so the manager does not know its own user name: the "
        "machine webhook, where it is installed, will reject the manager's spec.providerID writes and no machine "
        "will finish provisioning. Set both through the downward API (metadata.namespace and "
        "spec.serviceAccountName)."
    )


if __name__ == "__main__":
    main()
