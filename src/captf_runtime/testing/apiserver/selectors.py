"""Label and field selectors of list, watch and deletecollection."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from captf_runtime.testing.apiserver import names
from captf_runtime.testing.apiserver.status import ApiStatus, bad_request


@dataclass(frozen=True, slots=True)
class Requirement:
    """One term of a label selector; operators are = != in notin exists !exists gt lt."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels satisfy the term; `!=` and `notin` are satisfied by an absent key."""
        value = labels.get(self.key)
        match self.operator:
            case "=" | "in":
                return value is not None and value in self.values
            case "!=" | "notin":
                return value is None or value not in self.values
            case "exists":
                return value is not None
            case "!exists":
                return value is None
        if value is None or not re.fullmatch(r"-?\d+", value):
            return False
        bound = int(next(iter(self.values)))
        return int(value) > bound if self.operator == "gt" else int(value) < bound


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """All requirements must hold; without any, everything matches."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether an object with these labels is selected."""
        return all(requirement.matches(labels) for requirement in self.requirements)


_token = re.compile(r"\s*(!=|==|=|!|,|\(|\)|>|<|[^\s,()=!<>]+)")


def _tokens(text: str) -> list[str]:
    tokens: list[str] = []
    position = 0
    while position < len(text.rstrip()):
        found = _token.match(text, position)
        if found is None:
            raise ValueError(f"found '{text[position:]}'")
        tokens.append(found.group(1))
        position = found.end()
    return tokens


class _Malformed(ValueError):
    """A term that breaks the grammar inside; the server says so with a prefix."""


_SYNTAX = frozenset({"", ",", "(", ")", "=", "==", "!=", "!", ">", "<"})


class _Parser:
    """Reads a label selector; `legacy` words errors as 1.20 does."""

    def __init__(self, text: str, *, legacy: bool) -> None:
        self.tokens = _tokens(text)
        self.position = 0
        self.legacy = legacy

    def peek(self) -> str:
        return self.tokens[self.position] if self.position < len(self.tokens) else ""

    def take(self) -> str:
        token = self.peek()
        self.position += 1
        return token

    def key(self) -> str:
        token = self.take()
        if token in _SYNTAX:
            raise _Malformed(f"found '{token}', expected: identifier")
        problems = names.qualified_name(token)
        if problems:
            start = "invalid label key" if self.legacy else "key: Invalid value:"
            separator = "; "
            raise _Malformed(f'{start} "{token}": {separator.join(problems)}')
        return token

    def value(self, key: str) -> str:
        if self.peek() in ("", ",", ")"):
            return ""
        token = self.take()
        problems = names.label_value(token)
        if problems:
            detail = "; ".join(problems)
            if self.legacy:
                raise _Malformed(f'invalid label value: "{token}": at key: "{key}": {detail}')
            raise _Malformed(f'values[0][{key}]: Invalid value: "{token}": {detail}')
        return token

    def values(self, key: str) -> frozenset[str]:
        opening = self.take()
        if opening != "(":
            raise _Malformed(f"found '{opening}' expected: '('")
        found = {self.value(key)}
        while self.peek() == ",":
            self.take()
            found.add(self.value(key))
        closing = self.take()
        if closing != ")":
            raise _Malformed(f"found '{closing}', expected: ',' or ')'")
        return frozenset(found)

    def requirement(self) -> Requirement:
        if self.peek() == "!":
            self.take()
            return Requirement(self.key(), "!exists")
        key = self.key()
        operator = self.peek()
        if operator in ("", ","):
            return Requirement(key, "exists")
        self.take()
        match operator:
            case "=" | "==":
                return Requirement(key, "=", frozenset({self.value(key)}))
            case "!=":
                return Requirement(key, "!=", frozenset({self.value(key)}))
            case "in" | "notin":
                return Requirement(key, operator, self.values(key))
            case ">" | "<":
                bound = self.value(key)
                if not re.fullmatch(r"-?\d+", bound):
                    detail = "for 'Gt', 'Lt' operators, the value must be an integer"
                    if not self.legacy:
                        detail = f'values[0]: Invalid value: "{bound}": {detail}'
                    raise _Malformed(detail)
                return Requirement(key, "gt" if operator == ">" else "lt", frozenset({bound}))
        expected = "'=', '!=', '==', 'in', notin'" if self.legacy else "in, notin, =, ==, !=, gt, lt"
        raise _Malformed(f"found '{operator}', expected: {expected}")

    def parse(self) -> LabelSelector:
        found: list[Requirement] = []
        if self.peek() in _SYNTAX - {"", "!"}:
            raise ValueError(f"found '{self.peek()}', expected: !, identifier, or 'end of string'")
        while self.peek():
            found.append(self.requirement())
            if self.peek() == ",":
                self.take()
                if self.peek() in _SYNTAX - {"!"}:
                    raise ValueError(f"found '{self.peek()}', expected: identifier after ','")
            elif self.peek():
                raise ValueError(f"found '{self.peek()}', expected: ',' or 'end of string'")
        return LabelSelector(tuple(found))


def parse_labels(text: str, *, legacy: bool = False) -> LabelSelector:
    """A selector from its query form; raises a 400 `ApiStatus` naming what could not be read."""
    try:
        return _Parser(text, legacy=legacy).parse()
    except _Malformed as problem:
        raise bad_request(f"unable to parse requirement: {problem}") from problem
    except ValueError as problem:
        raise bad_request(str(problem)) from problem


@dataclass(frozen=True, slots=True)
class FieldTerm:
    """One term of a field selector; `equal` is false for !=."""

    field: str
    value: str
    equal: bool


@dataclass(frozen=True, slots=True)
class FieldSelector:
    """All terms must hold."""

    terms: tuple[FieldTerm, ...] = ()

    def matches(self, fields: Mapping[str, str]) -> bool:
        """Whether an object with these field values is selected."""
        return all((fields.get(term.field, "") == term.value) == term.equal for term in self.terms)

    def exact(self, field: str) -> str | None:
        """The value that `field` must have, when the selector fixes one."""
        for term in self.terms:
            if term.field == field and term.equal:
                return term.value
        return None

    def fields(self) -> tuple[str, ...]:
        """The fields that the selector names."""
        return tuple(term.field for term in self.terms)


_term = re.compile(r"(?P<field>[^=!]*?)(?P<operator>==|!=|=)(?P<value>.*)", re.DOTALL)


def parse_fields(text: str) -> FieldSelector:
    """A selector from its query form (backslash escapes `,`, `=` and itself); raises a 400 `ApiStatus`."""
    terms: list[FieldTerm] = []
    for part in re.split(r"(?<!\\),", text):
        if not part:
            continue
        found = _term.fullmatch(part)
        if found is None:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{part}'")
        value = re.sub(r"\\([\\,=])", r"\1", found["value"])
        terms.append(FieldTerm(found["field"], value, found["operator"] != "!="))
    return FieldSelector(tuple(terms))


def unknown_field(field: str, known: tuple[str, ...] | None) -> ApiStatus:
    """400 for a field that the resource cannot be selected by; `known` is named where the server does."""
    if known is None:
        return bad_request(f"field label not supported: {field}")
    listed = ", ".join(f'"{name}"' for name in known)
    return bad_request(f'"{field}" is not a known field selector: only {listed}')
