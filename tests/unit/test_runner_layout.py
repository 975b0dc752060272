from __future__ import annotations

import os
from pathlib import Path

import pytest

from captf_controllers.runner.layout import LayoutError, check_layout


def image(tmp_path: Path, *, configuration: str = "main.tf", mode: int = 0o755) -> tuple[str, list[str]]:
    module = tmp_path / "module"
    module.mkdir()
    (module / configuration).write_text("")
    runtime = tmp_path / "runtime"
    runtime.write_text("#!/bin/sh\n")
    runtime.chmod(mode)
    return str(module), [str(runtime)]


@pytest.mark.parametrize("name", ["main.tf", "x.tf.json", "y.tofu", "z.tofu.json"])
def test_every_kind_of_configuration_is_accepted(tmp_path: Path, name: str) -> None:
    check_layout(*image(tmp_path, configuration=name))


def test_links_are_followed(tmp_path: Path) -> None:
    module, [runtime] = image(tmp_path)
    link = tmp_path / "link"
    link.symlink_to(runtime)
    (tmp_path / "linked-module").symlink_to(module)
    check_layout(str(tmp_path / "linked-module"), [str(link)])


def test_a_plain_name_is_found_on_the_path(tmp_path: Path) -> None:
    module, _ = image(tmp_path)
    check_layout(module, ["sh"])
    with pytest.raises(LayoutError, match="PATH"):
        check_layout(module, ["no-such-program-anywhere"])


def test_a_module_must_be_there(tmp_path: Path) -> None:
    _, command = image(tmp_path)
    with pytest.raises(LayoutError, match="cannot be read"):
        check_layout(str(tmp_path / "gone"), command)


@pytest.mark.parametrize("name", ["README.md", "main.tf.bak", "nested/main.tf", "dir.tf/x"])
def test_a_module_must_hold_configuration_at_its_top(tmp_path: Path, name: str) -> None:
    _, command = image(tmp_path)
    empty = tmp_path / "empty"
    (empty / name).parent.mkdir(parents=True)
    (empty / name).write_text("")
    with pytest.raises(LayoutError, match="no configuration"):
        check_layout(str(empty), command)


def test_a_runtime_must_be_there_and_executable(tmp_path: Path) -> None:
    module, [runtime] = image(tmp_path, mode=0o644)
    with pytest.raises(LayoutError, match="not executable"):
        check_layout(module, [runtime])
    with pytest.raises(LayoutError, match="directory"):
        check_layout(module, [str(tmp_path)])
    with pytest.raises(LayoutError, match="cannot be found"):
        check_layout(module, [str(tmp_path / "gone")])
    with pytest.raises(LayoutError, match="empty"):
        check_layout(module, [""])


def test_an_execute_bit_for_others_only_is_not_enough(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may execute a file with any execute bit")
    module, [runtime] = image(tmp_path, mode=0o601)
    with pytest.raises(LayoutError, match="not executable"):
        check_layout(module, [runtime])
