"""``captf state list`` names what the runtime itself names."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from tests import state_secrets

from captf_controllers.api import names
from captf_controllers.state.addresses import managed_addresses

ROOT = """
resource "terraform_data" "one" { input = "s3cret" }
resource "terraform_data" "counted" {
  count = 3
}
resource "terraform_data" "keyed" {
  for_each = toset(["a", "b.c", "d\\"e", "ü"])
}
module "plain" { source = "./inner" }
module "many" {
  source   = "./inner"
  for_each = toset(["x", "y"])
}
"""
INNER = """
resource "terraform_data" "deep" {
  count = 2
}
"""


@pytest.mark.terraform
def test_the_addresses_are_those_of_the_runtime(tmp_path: Path) -> None:
    runtime = shutil.which("terraform") or shutil.which("tofu")
    assert runtime is not None
    (tmp_path / "inner").mkdir()
    (tmp_path / "main.tf").write_text(ROOT)
    (tmp_path / "inner" / "main.tf").write_text(INNER)

    def run(*arguments: str) -> str:
        ran = subprocess.run(
            [runtime, *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    run("init", "-no-color", "-input=false")
    run("apply", "-no-color", "-input=false", "-auto-approve")
    content = (tmp_path / "terraform.tfstate").read_bytes()
    secrets = state_secrets.state_secrets([state_secrets.payload(content)])
    listed = managed_addresses(names.state_secret(state_secrets.SUFFIX), secrets)
    assert sorted(listed) == sorted(run("state", "list").splitlines())
    assert len(listed) == 14
