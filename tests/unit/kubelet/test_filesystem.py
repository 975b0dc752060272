"""A container's root directory and the translation of its paths."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from captf_runtime.testing.kubelet.filesystem import (
    ContainerPaths,
    Mount,
    build_root,
    local_path,
    mounts_of,
    place_volumes,
)
from captf_runtime.testing.kubelet.images import Image

DIGEST = "sha256:" + "0" * 64


@pytest.fixture
def image_root(tmp_path: Path) -> Path:
    root = tmp_path / "image"
    (root / "app" / "module").mkdir(parents=True)
    (root / "app" / "module" / "main.tf").write_text("text")
    (root / "app" / "work").mkdir()
    (root / "app" / "work" / "shadowed").write_text("never seen")
    (root / "opt").mkdir()
    (root / "opt" / "program").write_text('#!/bin/sh\necho ran "$@"\n')
    (root / "opt" / "program").chmod(0o755)
    (root / "app" / "runtime").symlink_to("/opt/program")
    (root / "app" / "relative").symlink_to("module/main.tf")
    return root


@pytest.fixture
def root(tmp_path: Path, image_root: Path) -> Path:
    root = tmp_path / "root"
    mounts = [Mount("/app/work", "work"), Mount("/tmp", "tmp")]
    places = {"work": root / "app" / "work", "tmp": root / "tmp"}
    executables = {"/start": ["/bin/sh", "-c", 'echo "started $*"', "start"]}
    build_root(root, Image(image_root, DIGEST, executables=executables), mounts, places)
    return root


def test_the_root_shows_image_and_mounts(root: Path) -> None:
    assert (root / "app" / "module" / "main.tf").read_text() == "text"
    assert (root / "app" / "relative").read_text() == "text"
    assert list((root / "app" / "work").iterdir()) == []
    assert (root / "tmp").is_dir()


def test_a_mount_is_a_real_neighbour_of_image_directories(root: Path) -> None:
    (root / "app" / "work" / "inner").mkdir()
    found = subprocess.run(
        ["cat", "../../module/main.tf"], cwd=root / "app" / "work" / "inner", capture_output=True, check=True
    )
    assert found.stdout == b"text"


def test_an_absolute_link_of_the_image_stays_in_the_image(root: Path) -> None:
    found = subprocess.run([root / "app" / "runtime", "a b"], capture_output=True, text=True, check=True)
    assert found.stdout == "ran a b\n"


def test_new_files_stay_out_of_the_image(root: Path, image_root: Path) -> None:
    (root / "app" / "module" / "new").write_text("x")
    assert not (image_root / "app" / "module" / "new").exists()


def test_an_executable_gets_the_arguments_of_the_container(root: Path) -> None:
    found = subprocess.run([root / "start", "a", "b c"], capture_output=True, text=True, check=True)
    assert found.stdout == "started a b c\n"


def test_a_volume_lies_in_the_first_container_that_mounts_it(tmp_path: Path) -> None:
    containers = [
        {"name": "main", "volumeMounts": [{"name": "shared", "mountPath": "/data/"}]},
        {
            "name": "init",
            "volumeMounts": [
                {"name": "shared", "mountPath": "/out"},
                {"name": "part", "mountPath": "/part", "subPath": "x"},
            ],
        },
    ]
    roots = {"main": tmp_path / "main", "init": tmp_path / "init"}
    places = place_volumes(["shared", "part", "unused"], containers, roots, tmp_path / "spare")
    assert places == {
        "shared": tmp_path / "main" / "data",
        "part": tmp_path / "spare" / "part",
        "unused": tmp_path / "spare" / "unused",
    }
    build_root(roots["init"], Image(None, DIGEST), mounts_of(containers[1]), places)
    (roots["init"] / "out" / "file").write_text("x")
    (roots["init"] / "part" / "file").write_text("x")
    assert (tmp_path / "main" / "data" / "file").is_file()
    assert (tmp_path / "spare" / "part" / "x" / "file").is_file()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/app/module", "{root}/app/module"),
        ("--config=/config", "{root}=no"),
        ("--module=/app/module", "--module={root}/app/module"),
        ("--work=/app/work/new/deep", "--work={root}/app/work/new/deep"),
        ("--missing=/app/providers", "--missing={root}/app/providers"),
        ("/dev/termination-log", "{root}/dev/termination-log"),
        ("/tmp", "{root}/tmp"),
        ("/tmp/", "{root}/tmp/"),
        ("/app/work/../module", "{root}/app/module"),
        ("/bin/sh", "/bin/sh"),
        ("/dev/null", "/dev/null"),
        ("/", "/"),
        ("https://host/app/module", "https://host/app/module"),
        ("//app/module", "//app/module"),
        ("v1/Secret/app/module", "v1/Secret/app/module"),
        ('{"k"="/app/module","l"="x"}', '{{"k"="{root}/app/module","l"="x"}}'),
        ("/usr/bin:/app/module:/bin", "/usr/bin:{root}/app/module:/bin"),
        ("/application", "/application"),
        ("", ""),
    ],
)
def test_translation(root: Path, text: str, expected: str) -> None:
    paths = ContainerPaths(root, frozenset({"/app/work", "/tmp", "/dev/termination-log"}))
    if expected == "{root}=no":
        assert paths.translate(text) == text, "a directory that the container lacks is not its own"
    else:
        assert paths.translate(text) == expected.format(root=root)


def test_a_path_never_leaves_the_root(tmp_path: Path) -> None:
    assert local_path(tmp_path, "/a/../../../etc/passwd") == tmp_path / "etc" / "passwd"
