"""Expressions: what they mean, what they refuse, and what can be told before they run."""

from __future__ import annotations

from typing import Any

import pytest

from captf_runtime.testing.apiserver.schema import cel
from captf_runtime.testing.apiserver.schema.cel import analysis
from captf_runtime.testing.apiserver.schema.cel.values import ListValue, escape_property
from captf_runtime.testing.apiserver.schema.compiled import build

pytestmark = pytest.mark.requirement("AS16")


def value(text: str, **variables: Any) -> Any:
    return cel.compile_expression(text).evaluate(variables)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("-7 / 2", -3),
        ("7 / -2", -3),
        ("-7 % 2", -1),
        ("7.0 / 2.0", 3.5),
        ("0x10 + 1", 17),
        ("2u + 3u", 5),
        ("-(3)", -3),
        ("1.5e3", 1500.0),
        ("'a' + \"b\"", "ab"),
        ("'''a'b'''", "a'b"),
        (r"r'\d'", "\\d"),
        (r"'\x41\u00e4\n\101'", "Aä\nA"),
        ("b'ab' == bytes('ab')", True),
        ("[1, 2] + [3]", [1, 2, 3]),
        ("{'a': 1}['a']", 1),
        ("{'a': 1}.a", 1),
        ("[5, 6][1]", 6),
        ("1 == 1.0", True),
        ("1 == '1'", False),
        ("'a' < 'b'", True),
        ("true && !false", True),
        ("true || false && false", True),
        ("1 < 2 ? 'y' : 'n'", "y"),
        ("2 in [1, 2]", True),
        ("'a' in {'a': 1}", True),
        ("null == null", True),
        ("size('äb') + size([1]) + size({'a': 1})", 4),
        ("'abc'.size()", 3),
        ("'abc'.startsWith('ab') && 'abc'.endsWith('bc') && 'abc'.contains('b')", True),
        ("'abc'.matches('^a.c$')", True),
        ("matches('abc', 'x')", False),
        ("string(1) + string(1.5) + string(true) + string('x')", "11.5truex"),
        ("int('7') + int(1.9)", 8),
        ("double('1.5')", 1.5),
        ("bool('true')", True),
        ("type(1) == int && type('a') == string && type(int) == type", True),
        ("[1, 2, 3].all(x, x > 0)", True),
        ("[1, 2, 3].exists(x, x > 2)", True),
        ("[1, 2, 3].exists_one(x, x > 2)", True),
        ("[1, 2, 3].map(x, x * 2)", [2, 4, 6]),
        ("[1, 2, 3].map(x, x > 1, x * 2)", [4, 6]),
        ("[1, 2, 3].filter(x, x != 2)", [1, 3]),
        ("{'a': 1, 'b': 2}.all(k, k in ['a', 'b'])", True),
        ("{'a': 1}.map(k, k)", ["a"]),
        ("[1, 2].all(i, v, v == i + 1)", True),
        ("has({'a': 1}.a)", True),
        ("has({'a': 1}.b)", False),
        ("duration('1h') < duration('90m')", True),
        ("timestamp('2020-01-01T00:00:00Z') + duration('1h') == timestamp('2020-01-01T01:00:00Z')", True),
        ("timestamp('2020-01-01T01:00:00Z') - timestamp('2020-01-01T00:00:00Z') == duration('1h')", True),
        ("timestamp('2020-01-05T03:04:05Z').getDayOfWeek()", 0),
        ("duration('90m').getHours()", 1),
        ("'a,b'.split(',')", ["a", "b"]),
        ("['a', 'b'].join('-')", "a-b"),
        ("'aXb'.lowerAscii() + 'a'.upperAscii()", "axbA"),
        ("'abcabc'.indexOf('c') + 'abcabc'.lastIndexOf('c')", 7),
        ("'abc'.substring(1) + 'abc'.substring(0, 1) + 'abc'.charAt(1)", "bcab"),
        ("' a '.trim()", "a"),
        ("'aaa'.replace('a', 'b', 2)", "bba"),
        ("'a1b22'.find('[0-9]+') + 'a1b22'.findAll('[0-9]+')[1]", "122"),
        ("'%s-%d-%.1f'.format(['a', 3, 1.25])", "a-3-1.2"),
        ("[1, 3, 2].max() + [1, 3, 2].min() + [1, 2].sum()", 7),
        ("[1, 2].isSorted() && !['b', 'a'].isSorted()", True),
        ("sets.contains([1, 2], [1]) && sets.intersects([1], [1, 2]) && sets.equivalent([1, 1], [1])", True),
        ("optional.of(1).orValue(2) + optional.none().orValue(2)", 3),
        ("{'a': {'b': 1}}.?a.?b.orValue(0)", 1),
        ("{'a': 1}.?b.hasValue()", False),
        ("[1][?3].orValue(9)", 9),
        ("optional.of(2).optMap(x, x + 1).value()", 3),
        ("isURL('https://a/b') && url('https://a:1/b').getHost() == 'a:1'", True),
        ("isIP('::1') && isCIDR('10.0.0.0/8')", True),
        ("dyn(1) == 1", True),
        ("false && 1 / 0 == 1", False),
        ("1 / 0 == 1 && false", False),
        ("1 / 0 == 1 || true", True),
        ("[0, 1].exists(x, 1 / x == 1)", True),
        ("[0, 1].all(x, 1 / x == 2)", False),
        ("// a comment\n1", 1),
    ],
)
def test_values(text: str, expected: object) -> None:
    assert value(text) == expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("self.b", "no such key: b"),
        ("self.a.b.c", "no such key: b"),
        ("[1][3]", "index out of bounds: 3"),
        ("{'a': 1}['b']", "no such key: b"),
        ("1 / 0", "division by zero"),
        ("1 % 0", "modulus by zero"),
        ("9223372036854775807 + 1", "integer overflow"),
        ("1 + 'a'", "no such overload"),
        ("1 && true", "no such overload"),
        ("'a'.startsWith(1)", "no such overload"),
        ("int('x')", "error converting 'x' to int"),
        ("optional.none().value()", "optional.none() dereference"),
        ("timestamp('x') == timestamp('y')", "invalid timestamp 'x'"),
        ("duration('x') == duration('y')", "invalid duration 'x'"),
    ],
)
def test_no_value(text: str, problem: str) -> None:
    with pytest.raises(cel.EvaluationError) as caught:
        value(text, self={"a": {}})
    assert str(caught.value) == problem


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("self.", "1:6: Syntax error: mismatched input '<EOF>' expecting a field name"),
        ("self.x = 1", "1:8: Syntax error: token recognition error at: '='"),
        ("foo(1)", "1:1: undeclared reference to 'foo' (in container '')"),
        ("self.foo()", "1:6: undeclared reference to 'foo' (in container '')"),
        ("1 +\n bar", "2:2: undeclared reference to 'bar' (in container '')"),
        ("has(self)", "1:1: invalid argument to has() macro"),
        ("'a", "1:1: Syntax error: unterminated string literal"),
        ("[1, ", "1:5: Syntax error: mismatched input '<EOF>' expecting an expression"),
        ("1 2", "1:3: Syntax error: mismatched input '2' expecting <EOF>"),
        ("self.all(1, true)", "1:10: argument must be a simple name"),
        ("namespace", "1:1: reserved identifier: namespace"),
        ("99999999999999999999", "1:1: invalid int literal"),
    ],
)
def test_refused_at_compilation(text: str, line: str) -> None:
    with pytest.raises(cel.CompileError) as caught:
        cel.compile_expression(text)
    assert str(caught.value).splitlines()[0] == f"compilation failed: ERROR: <input>:{line}"
    assert str(caught.value).splitlines()[-1].endswith("^")


def test_names() -> None:
    assert cel.compile_expression("self.a == oldSelf.a").names == {"self", "oldSelf"}
    assert cel.compile_expression("[1].all(self, self > 0)").names <= {"self"}


@pytest.mark.parametrize(
    ("name", "escaped"),
    [
        ("a", "a"),
        ("a.b", "a__dot__b"),
        ("a-b/c", "a__dash__b__slash__c"),
        ("a__b", "a__underscores__b"),
        ("namespace", "__namespace__"),
        ("1a", None),
        ("$ref", None),
    ],
)
def test_escaped_properties(name: str, escaped: str | None) -> None:
    assert escape_property(name) == escaped


def test_values_of_a_schema() -> None:
    node = build(
        {
            "type": "object",
            "properties": {
                "n": {"type": "number"},
                "t": {"type": "string", "format": "date-time"},
                "d": {"type": "string", "format": "duration"},
                "b": {"type": "string", "format": "byte"},
                "m": {"type": "object", "additionalProperties": {"type": "integer"}},
                "namespace": {"type": "string"},
                "p": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            },
        }
    )
    obj = {
        "n": 1,
        "t": "2020-01-01T00:00:00Z",
        "d": "1h",
        "b": "YQ==",
        "m": {"x.y": 1},
        "namespace": "ns",
        "p": {"hidden": 1},
        "unknown": 1,
    }
    seen = cel.typed(obj, node)
    assert isinstance(seen["n"], float)
    assert isinstance(seen["t"], cel.Timestamp)
    assert isinstance(seen["d"], cel.Duration)
    assert (seen["b"], seen["m"], seen["__namespace__"], seen["p"]) == (b"a", {"x.y": 1}, "ns", {})
    assert "unknown" not in seen


def test_the_whole_object() -> None:
    node = build({"type": "object", "properties": {"spec": {"type": "object"}}})
    obj = {
        "apiVersion": "v1",
        "kind": "K",
        "metadata": {"name": "a", "labels": {"x": "y"}},
        "spec": {},
    }
    assert cel.typed(obj, node, is_root=True) == {
        "apiVersion": "v1",
        "kind": "K",
        "metadata": {"name": "a"},
        "spec": {},
    }


def test_sets_and_maps_of_a_schema() -> None:
    left, right = ListValue([1, 2], list_type="set"), ListValue([2, 1], list_type="set")
    assert value("self == oldSelf", self=left, oldSelf=right) is True
    assert value("self + [2, 3]", self=left) == [1, 2, 3]
    keyed = ListValue([{"k": 1, "v": 1}], list_type="map", keys=("k",))
    assert value("self + [{'k': 1, 'v': 2}]", self=keyed) == [{"k": 1, "v": 2}]


TEXTS = {"type": "array", "maxItems": 10, "items": {"type": "string", "maxLength": 20}}
SCHEMA = {
    "type": "object",
    "properties": {
        "size": {"type": "integer"},
        "name": {"type": "string", "maxLength": 63},
        "free": {"type": "string"},
        "list": TEXTS,
        "endless": {"type": "array", "items": {"type": "string"}},
        "map": {"type": "object", "additionalProperties": {"type": "integer"}},
        "inner": {"type": "object", "properties": {"x": {"type": "boolean"}}},
        "either": {"x-kubernetes-int-or-string": True},
    },
}


def cost(text: str) -> float:
    own = analysis.info_of(build(SCHEMA))
    program = cel.compile_expression(text)
    return analysis.analyse(program.expression, text, {"self": own, "oldSelf": own}, "bool").cost


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("self.color == 'red'", "undefined field 'color'"),
        ("has(self.inner.y)", "undefined field 'y'"),
        ("self.size.x == 1", "type 'int' does not support field selection"),
        ("self.size == 'a'", "found no matching overload for '_==_' applied to '(int, string)'"),
        ("self.size + self.name == 'a'", "found no matching overload for '_+_' applied to '(int, string)'"),
        ("self.size && true", "found no matching overload for '_&&_' applied to '(int, bool)'"),
        ("!self.size", "found no matching overload for '!_' applied to '(int)'"),
        ("self.list < self.list", "found no matching overload for '_<_' applied to '(list, list)'"),
        ("'a' in self.name", "found no matching overload for '_in_' applied to '(string, string)'"),
        ("self.size", "must evaluate to a bool"),
        ("self.name.all(x, true)", "expression of type 'string' cannot be range of a comprehension"),
        ("self.list.all(x, x)", "expected type 'bool'"),
        ("self.list.all(x, x.y == 1)", "type 'string' does not support field selection"),
    ],
)
def test_types(text: str, problem: str) -> None:
    with pytest.raises(cel.CompileError) as caught:
        cost(text)
    assert caught.value.problem == problem


@pytest.mark.parametrize(
    "text",
    [
        "self.size > 1 && self.name.startsWith('a') || self.inner.x",
        "self.either == 'a' || self.either == 1",
        "self.map.all(k, self.map[k] > 0)",
        "self.list.map(x, x + 'a').exists(y, y == 'ba')",
        "self.?name.orValue('a') == 'a'",
        "size(self.list) == self.list.size()",
        "(self.size > 1 ? self.name : 'x') == 'x'",
        "-self.size < 3 && self.size % 2 == 0",
        "type(self.size) == int",
        "dyn(self.size) == 1.5",
    ],
)
def test_types_that_fit(text: str) -> None:
    assert cost(text) < analysis.RULE_LIMIT


def test_cost_grows_with_what_may_come() -> None:
    assert cost("self.name == 'a'") < cost("self.free == self.free + 'x'")
    assert cost("self.list.all(x, x == 'a')") < cost("self.endless.all(x, x == 'a')")
    bounded, endless = (
        "self.list.all(x, self.list.all(y, x != y))",
        "self.endless.all(x, self.endless.all(y, x != y))",
    )
    assert cost(bounded) < analysis.RULE_LIMIT < cost(endless)
