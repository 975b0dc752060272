from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from captf_controllers.runner.redaction import (
    REPLACEMENT,
    Redactor,
    add_environment,
    add_inputs,
    add_plan,
)


def redactor(*secrets: str, line_minimum: int = 4) -> Redactor:
    made = Redactor()
    for secret in secrets:
        made.add(secret, line_minimum=line_minimum)
    return made


def test_every_occurrence_is_replaced() -> None:
    assert redactor("hunter2").redact("a hunter2, hunter2!") == "a (sensitive), (sensitive)!"


def test_values_under_four_bytes_are_ignored() -> None:
    assert redactor("abc").redact("abc") == "abc"
    assert redactor("éé").redact("éé") == REPLACEMENT


def test_the_longest_match_wins() -> None:
    assert redactor("pass", "password").redact("password pass") == "(sensitive) (sensitive)"


def test_overlapping_matches_leave_nothing() -> None:
    assert redactor("abcdef", "defghi").redact("xabcdefghix") == "x(sensitive)x"


def test_adjacent_matches_are_replaced_apart() -> None:
    assert redactor("aaaa", "bbbb").redact("aaaabbbb") == REPLACEMENT * 2


def test_the_replacement_is_not_redacted_again() -> None:
    assert redactor("sensitive", "hunter2").redact("hunter2") == REPLACEMENT


@pytest.mark.parametrize("secret", ['quote"d\\value', "tab\tbed", "<tag>&more", "ümläut\u2028"])
def test_json_forms_are_replaced(secret: str) -> None:
    as_go = json.dumps(secret, ensure_ascii=False)
    for character in "<>&\u2028":
        as_go = as_go.replace(character, f"\\u{ord(character):04x}")
    for text in (json.dumps(secret), json.dumps(secret, ensure_ascii=False), as_go):
        assert redactor(secret).redact(text) == '"(sensitive)"'


def test_lines_of_a_secret_are_replaced_trimmed() -> None:
    known = redactor("first line\n  second line  \nend")
    assert known.redact("has second line here; end") == "has (sensitive) here; end"


@pytest.mark.parametrize("secret", ["hunter2\n", "  hunter2", "\r\nhunter2\r\n", "hunter2"])
def test_space_around_a_secret_is_not_needed_to_find_it(secret: str) -> None:
    assert redactor(secret, line_minimum=16).redact("a hunter2!") == "a (sensitive)!"


def test_short_lines_of_bulk_text_are_kept() -> None:
    known = redactor("#cloud-config\npassword: 0123456789abcdef", line_minimum=16)
    assert known.redact("#cloud-config") == "#cloud-config"
    assert known.redact("password: 0123456789abcdef") == REPLACEMENT


def test_a_line_of_two_secrets_takes_the_larger_minimum() -> None:
    for order in ((4, 16), (16, 4)):
        known = Redactor()
        for minimum, other in zip(order, ("one", "two"), strict=True):
            known.add(f"shared line\n{other} is different", line_minimum=minimum)
        assert known.redact("shared line") == "shared line"


def test_the_environment_is_registered_by_name_or_length() -> None:
    known = Redactor()
    add_environment(
        known,
        {
            "API_KEY": "short1",
            "my_passphrase": "short2",
            "PLAIN": "short3",
            "LONG": "0123456789abcdef",
            "HOME": "/captf/work/home/long",
            "PATH": "/usr/local/bin:/usr/bin",
            "HOSTNAME": "captf-m-web-apply-a1-abc123-x7k2p",
            "KUBERNETES_SERVICE_HOST_TOKEN": "tokentoken",
            "AUTH": "abc",
        },
    )
    text = (
        "short1 short2 short3 0123456789abcdef /captf/work/home/long /usr/local/bin:/usr/bin tokentoken abc"
    )
    assert known.redact(text) == (
        "(sensitive) (sensitive) short3 (sensitive) /captf/work/home/long /usr/local/bin:/usr/bin "
        "tokentoken abc"
    )
    holder = "root@captf-m-web-apply-a1-abc123-x7k2p"
    assert known.redact(holder) == holder


def test_sensitive_variables_and_bootstrap_data_are_registered(tmp_path: Path) -> None:
    bootstrap = "#cloud-config\nruncmd: [kubeadm join --token abcdef.0123]\n"
    encoded = base64.b64encode(bootstrap.encode()).decode()
    variables = {"plain": {}, "db": {"sensitive": True}, "gone": {"sensitive": True}}
    (tmp_path / "main.tf.json").write_text(json.dumps({"variable": variables}))
    values = {
        "plain": "visible-value",
        "db": {"password": "hunter22", "hosts": ["db-one", {"user": "root-user"}], "port": 5432},
        "bootstrap_data": encoded,
    }
    (tmp_path / "terraform.tfvars.json").write_text(json.dumps(values))
    known = Redactor()
    add_inputs(known, tmp_path)
    assert known.redact("visible-value hunter22 db-one root-user 5432") == (
        "visible-value (sensitive) (sensitive) (sensitive) 5432"
    )
    assert known.redact(f"x {encoded} y") == "x (sensitive) y"
    assert known.redact("runcmd: [kubeadm join --token abcdef.0123]") == REPLACEMENT
    assert known.redact("#cloud-config") == "#cloud-config"


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff", b'{"variable": []}', b'{"variable": {"a": 1}}'])
def test_files_that_hold_nothing_useful_register_nothing(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "main.tf.json").write_bytes(content)
    add_inputs(Redactor(), tmp_path)
    add_inputs(Redactor(), tmp_path / "missing")


def test_what_a_plan_marks_sensitive_is_registered() -> None:
    known = Redactor()
    add_plan(
        known,
        {
            "resource_changes": [
                {
                    "change": {
                        "actions": ["no-op"],
                        "before": {"old": "before-secret", "shown": "public-value"},
                        "before_sensitive": {"old": True},
                        "after": {"list": ["zero-item", {"deep": "deep-secret"}]},
                        "after_sensitive": {"list": [False, True]},
                    }
                }
            ],
            "output_changes": {"o": {"after": "output-value", "after_sensitive": True}},
            "prior_state": {
                "values": {
                    "root_module": {
                        "resources": [
                            {"mode": "managed", "values": {"a": "managed"}, "sensitive_values": True}
                        ],
                        "child_modules": [
                            {
                                "child_modules": [
                                    {
                                        "resources": [
                                            {
                                                "mode": "data",
                                                "values": {"token": "data-token", "id": "data-identity"},
                                                "sensitive_values": {"token": True},
                                            }
                                        ]
                                    }
                                ]
                            }
                        ],
                    }
                }
            },
        },
    )
    text = "before-secret public-value zero-item deep-secret output-value managed data-token data-identity"
    assert known.redact(text) == (
        "(sensitive) public-value zero-item (sensitive) output-value managed (sensitive) data-identity"
    )


@settings(deadline=None)
@given(
    st.lists(st.text("abcd\n", min_size=4, max_size=8), max_size=4),
    st.lists(st.text("abcde\n", max_size=12), max_size=4),
)
def test_no_secret_survives(secrets: list[str], parts: list[str]) -> None:
    text = "".join(part + secret for part, secret in zip(parts, secrets, strict=False))
    redacted = redactor(*secrets).redact(text)
    for secret in secrets:
        assert secret not in redacted.replace(REPLACEMENT, "\0")
