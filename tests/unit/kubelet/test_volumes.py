"""The files of volumes and the values of environments, given the objects that they come from."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from captf_runtime.objects import Object
from captf_runtime.testing.kubelet.environment import container_environment, expand
from captf_runtime.testing.kubelet.volumes import NotReady, VolumeFile, volume_files, write_files

POD: Object = {
    "metadata": {
        "name": "pod",
        "namespace": "ns",
        "uid": "u1",
        "labels": {"a": "x"},
        "annotations": {"b": "y"},
    },
    "spec": {"serviceAccountName": "runner"},
}


class Objects:
    """Reads Secrets and ConfigMaps from dictionaries of texts."""

    def __init__(
        self,
        secrets: Mapping[str, Mapping[str, str]] | None = None,
        config_maps: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        self._secrets = dict(secrets or {})
        self._config_maps = dict(config_maps or {})

    def secret(self, name: str) -> Object | None:
        if name not in self._secrets:
            return None
        return {"data": {k: base64.b64encode(v.encode()).decode() for k, v in self._secrets[name].items()}}

    def config_map(self, name: str) -> Object | None:
        return {"data": dict(self._config_maps[name])} if name in self._config_maps else None


def token(audience: str, seconds: int) -> str:
    return f"token for {audience} of {seconds} s"


def files(volume: Object, objects: Objects | None = None) -> dict[str, VolumeFile] | None:
    return volume_files({"name": "v", **volume}, POD, objects or Objects(), token)


def test_a_secret_volume_holds_every_key_with_the_default_mode() -> None:
    secrets = Objects({"s": {"a": "1", "b": "2"}})
    assert files({"secret": {"secretName": "s"}}, secrets) == {
        "a": VolumeFile(b"1", 0o644),
        "b": VolumeFile(b"2", 0o644),
    }
    assert files({"secret": {"secretName": "s", "defaultMode": 0o440}}, secrets) == {
        "a": VolumeFile(b"1", 0o440),
        "b": VolumeFile(b"2", 0o440),
    }


def test_items_choose_keys_paths_and_modes() -> None:
    items = [{"key": "a", "path": "deep/er/x", "mode": 0o400}, {"key": "b", "path": "b"}]
    found = files(
        {"secret": {"secretName": "s", "items": items, "defaultMode": 0o440}},
        Objects({"s": {"a": "1", "b": "2", "c": "3"}}),
    )
    assert found == {"deep/er/x": VolumeFile(b"1", 0o400), "b": VolumeFile(b"2", 0o440)}


@pytest.mark.parametrize(
    ("volume", "message"),
    [
        ({"secret": {"secretName": "s"}}, 'secret "s" not found'),
        ({"configMap": {"name": "c"}}, 'configmap "c" not found'),
        ({"projected": {"sources": [{"secret": {"name": "s"}}]}}, 'secret "s" not found'),
        (
            {"secret": {"secretName": "there", "items": [{"key": "no", "path": "no"}]}},
            "references non-existent secret key: no",
        ),
        ({"secret": {"secretName": "there", "items": [{"key": "a", "path": "../a"}]}}, "relative"),
        ({"hostPath": {"path": "/"}}, "hostPath"),
    ],
)
def test_what_is_missing_is_named(volume: Object, message: str) -> None:
    with pytest.raises(NotReady, match=message):
        files(volume, Objects({"there": {"a": "1"}}))


def test_optional_sources_may_be_missing() -> None:
    assert files({"secret": {"secretName": "s", "optional": True}}) == {}
    assert files({"configMap": {"name": "c", "optional": True}}) == {}


def test_a_projection_joins_its_sources() -> None:
    sources = [
        {"secret": {"name": "run"}},
        {"secret": {"name": "chunk", "items": [{"key": "tfstate", "path": "restore/0"}]}},
        {"configMap": {"name": "c"}},
        {"serviceAccountToken": {"path": "token", "audience": "aud", "expirationSeconds": 700}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
    ]
    objects = Objects({"run": {"main": "m"}, "chunk": {"tfstate": "t"}}, {"c": {"k": "v"}})
    assert files({"projected": {"sources": sources, "defaultMode": 0o440}}, objects) == {
        "main": VolumeFile(b"m", 0o440),
        "restore/0": VolumeFile(b"t", 0o440),
        "k": VolumeFile(b"v", 0o440),
        "token": VolumeFile(b"token for aud of 700 s", 0o440),
        "namespace": VolumeFile(b"ns", 0o440),
    }


def test_an_empty_directory_has_no_files() -> None:
    assert files({"emptyDir": {}}) is None


def test_files_are_written_with_their_modes_behind_links(tmp_path: Path) -> None:
    write_files(tmp_path, {"a": VolumeFile(b"1", 0o440), "restore/0": VolumeFile(b"2", 0o400)})
    assert (tmp_path / "a").read_bytes() == b"1"
    assert (tmp_path / "restore" / "0").read_bytes() == b"2"
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o440
    assert os.readlink(tmp_path / "a") == "..data/a"


def test_a_second_write_replaces_the_first_at_once(tmp_path: Path) -> None:
    write_files(tmp_path, {"a": VolumeFile(b"1"), "gone": VolumeFile(b"x"), "d/e": VolumeFile(b"y")})
    write_files(tmp_path, {"a": VolumeFile(b"2"), "new": VolumeFile(b"z")})
    visible = sorted(path.name for path in tmp_path.iterdir() if not path.name.startswith(".."))
    assert visible == ["a", "new"]
    assert (tmp_path / "a").read_bytes() == b"2"
    hidden = [path for path in tmp_path.iterdir() if path.name.startswith("..content")]
    assert len(hidden) == 1, "the former content is gone"


def environment(container: Object, objects: Objects | None = None) -> dict[str, str]:
    return container_environment(container, POD, objects or Objects())


def test_later_entries_win_and_env_wins_over_env_from() -> None:
    container = {
        "envFrom": [
            {"configMapRef": {"name": "c"}},
            {"secretRef": {"name": "s"}, "prefix": "P_"},
            {"secretRef": {"name": "s"}},
        ],
        "env": [
            {"name": "A", "value": "own"},
            {"name": "B", "value": "$(A)-$(C)-$$(A)-$(NO)"},
            {"name": "E"},
        ],
    }
    objects = Objects({"s": {"A": "secret", "C": "sc", "1bad": "x"}}, {"c": {"A": "map", "C": "mc"}})
    assert environment(container, objects) == {
        "A": "own",
        "C": "sc",
        "P_A": "secret",
        "P_C": "sc",
        "P_1bad": "x",
        "B": "own-sc-$(A)-$(NO)",
        "E": "",
    }


def test_values_from_fields_and_keys() -> None:
    container = {
        "env": [
            {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "LABEL", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['a']"}}},
            {"name": "ACCOUNT", "valueFrom": {"fieldRef": {"fieldPath": "spec.serviceAccountName"}}},
            {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
            {"name": "NONE", "valueFrom": {"secretKeyRef": {"name": "s", "key": "no", "optional": True}}},
            {"name": "MAP", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}},
        ]
    }
    objects = Objects({"s": {"k": "v"}}, {"c": {"k": "w"}})
    expected = {"NAME": "pod", "LABEL": "x", "ACCOUNT": "runner", "KEY": "v", "MAP": "w"}
    assert environment(container, objects) == expected


@pytest.mark.parametrize(
    ("container", "message"),
    [
        ({"envFrom": [{"secretRef": {"name": "s"}}]}, 'secret "s" not found'),
        ({"envFrom": [{"configMapRef": {"name": "c"}}]}, 'configmap "c" not found'),
        (
            {"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "there", "key": "no"}}}]},
            "couldn't find key no in Secret ns/there",
        ),
        ({"env": [{"name": "A", "valueFrom": {"resourceFieldRef": {}}}]}, "resourceFieldRef"),
        ({"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.x"}}}]}, "spec.x"),
    ],
)
def test_an_environment_that_cannot_be_composed_says_why(container: Object, message: str) -> None:
    with pytest.raises(NotReady, match=message):
        environment(container, Objects({"there": {"a": "1"}}))


def test_expansion_leaves_unknown_names_alone() -> None:
    assert expand("$(A) $(B) $$(A) $ $x", {"A": "1"}) == "1 $(B) $(A) $ $x"
