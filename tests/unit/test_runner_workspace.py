from __future__ import annotations

from pathlib import Path

import pytest

from captf_controllers.runner.flags import Settings
from captf_controllers.runner.workspace import (
    PrepareError,
    cli_configuration,
    original_environment,
    prepare,
    runtime_environment,
)


def settings(tmp_path: Path) -> Settings:
    (tmp_path / "config").mkdir()
    return Settings(
        op="apply",
        config=str(tmp_path / "config"),
        workdir=str(tmp_path / "work"),
        providers=str(tmp_path / "providers"),
    )


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_a_secret_volume_is_copied_by_its_files(tmp_path: Path) -> None:
    made = settings(tmp_path)
    config = tmp_path / "config"
    data = config / "..2026_data"
    data.mkdir()
    (data / "main.tf.json").write_text("{}")
    (config / "..data").symlink_to(data)
    (config / "main.tf.json").symlink_to(Path("..data") / "main.tf.json")
    (config / "terraform.tfvars.json").write_text('{"a": 1}')
    (config / ".hidden").write_text("")
    (config / "restore").mkdir()
    (config / "restore" / "0").write_text("")
    workspace = prepare(made, {})
    assert sorted(path.name for path in workspace.root.iterdir()) == ["main.tf.json", "terraform.tfvars.json"]
    assert not (workspace.root / "main.tf.json").is_symlink()
    assert mode(workspace.root) == 0o700
    assert mode(workspace.root / "main.tf.json") == 0o600


def test_the_environment_is_forced_and_filtered(tmp_path: Path) -> None:
    environment, dropped = runtime_environment(
        {
            "PATH": "/bin",
            "HOME": "/home/elsewhere",
            "TMPDIR": "/tmp",
            "TF_IN_AUTOMATION": "1",
            "TF_INPUT": "0",
            "KUBE_NAMESPACE": "ns",
            "TF_VAR_x": "1",
            "TF_CLI_CONFIG_FILE": "/x",
            "TF_DATA_DIR": "/x",
            "TF_PLUGIN_CACHE_DIR": "/x",
            "KUBE_CONFIG_PATH": "/x",
            "KUBERNETES_SERVICE_HOST": "10.0.0.1",
            "AWS_REGION": "eu",
        },
        tmp_path,
    )
    assert environment == {
        "PATH": "/bin",
        "HOME": str(tmp_path),
        "TF_DATA_DIR": str(tmp_path / ".terraform"),
        "TMPDIR": "/tmp",
        "TF_IN_AUTOMATION": "1",
        "TF_INPUT": "0",
        "KUBE_NAMESPACE": "ns",
        "KUBERNETES_SERVICE_HOST": "10.0.0.1",
        "AWS_REGION": "eu",
    }
    assert dropped == [
        "KUBE_CONFIG_PATH", "TF_CLI_CONFIG_FILE", "TF_DATA_DIR", "TF_PLUGIN_CACHE_DIR", "TF_VAR_x",
    ]  # fmt: skip


@pytest.mark.parametrize("environ", [{}, {"TMPDIR": ""}])
def test_a_temporary_directory_is_made_when_none_is_set(tmp_path: Path, environ: dict[str, str]) -> None:
    workspace = prepare(settings(tmp_path), environ)
    assert workspace.environment["TMPDIR"] == str(tmp_path / "work" / "tmp")
    assert mode(tmp_path / "work" / "tmp") == 0o700


def test_a_mirror_gets_a_cli_configuration(tmp_path: Path) -> None:
    made = settings(tmp_path)
    (tmp_path / "providers").mkdir()
    workspace = prepare(made, {})
    configuration = tmp_path / "work" / "cli.tfrc"
    assert workspace.environment["TF_CLI_CONFIG_FILE"] == str(configuration)
    assert mode(configuration) == 0o600
    assert configuration.read_text() == (
        "provider_installation {\n"
        "  filesystem_mirror {\n"
        f'    path    = "{tmp_path}/providers"\n'
        '    include = ["*/*/*"]\n'
        "  }\n"
        "  direct {\n"
        '    exclude = ["*/*/*"]\n'
        "  }\n"
        "}\n"
    )


def test_without_a_mirror_there_is_none(tmp_path: Path) -> None:
    workspace = prepare(settings(tmp_path), {"TF_CLI_CONFIG_FILE": "/x"})
    assert "TF_CLI_CONFIG_FILE" not in workspace.environment
    assert not (tmp_path / "work" / "cli.tfrc").exists()


def test_a_mirror_path_is_quoted() -> None:
    assert 'path    = "/a \\"b\\" $${c}\\\\"' in cli_configuration('/a "b" ${c}\\')


def test_a_missing_configuration_is_named(tmp_path: Path) -> None:
    made = settings(tmp_path)
    made.config = str(tmp_path / "gone")
    with pytest.raises(PrepareError, match="gone"):
        prepare(made, {})


def test_the_environment_before_the_bootstrap_is_restored() -> None:
    environ = {
        "A": "1",
        "_PYI_ARCHIVE_FILE": "/x",
        "_MEIPASS2": "/x",
        "STATICX_PROG_PATH": "/x",
        "LD_LIBRARY_PATH": "/tmp/_MEI1",
        "LD_LIBRARY_PATH_ORIG": "/lib/mine",
    }
    assert original_environment(environ, frozen=True) == {"A": "1", "LD_LIBRARY_PATH": "/lib/mine"}
    del environ["LD_LIBRARY_PATH_ORIG"]
    assert original_environment(environ, frozen=True) == {"A": "1"}
    assert original_environment(environ, frozen=False) == environ
