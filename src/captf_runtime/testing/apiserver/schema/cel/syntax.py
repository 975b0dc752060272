"""Source text of an expression to a tree: scanner, parser, and the macros that are syntax (`has`, `all`,
`map`...).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TypeAlias


class CompileError(ValueError):
    """An expression that is not valid; the text shows the place as the server does."""

    def __init__(self, message: str, source: str, offset: int) -> None:
        line_number = source.count("\n", 0, offset) + 1
        start = source.rfind("\n", 0, offset) + 1
        line = source[start:].split("\n", 1)[0]
        column = offset - start
        super().__init__(
            f"compilation failed: ERROR: <input>:{line_number}:{column + 1}: {message}\n"
            f" | {line}\n | {'.' * column}^"
        )
        self.problem = message
        self.offset = offset


@dataclass(frozen=True, slots=True)
class Literal:
    value: object
    offset: int
    unsigned: bool = False


@dataclass(frozen=True, slots=True)
class Identifier:
    name: str
    offset: int


@dataclass(frozen=True, slots=True)
class Select:
    """`operand.field`; a test for presence when it stood in `has()`; optional when written `.?field`."""

    operand: Expression
    field: str
    offset: int
    test_only: bool = False
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """A function, operator (named like `_&&_`) or method call; `target` is the receiver of a method."""

    function: str
    target: Expression | None
    arguments: tuple[Expression, ...]
    offset: int


@dataclass(frozen=True, slots=True)
class ListLiteral:
    items: tuple[Expression, ...]
    offset: int


@dataclass(frozen=True, slots=True)
class MapLiteral:
    entries: tuple[tuple[Expression, Expression], ...]
    offset: int


@dataclass(frozen=True, slots=True)
class Comprehension:
    """One of the macros that walk a list or the keys of a map."""

    macro: str
    range: Expression
    variable: str
    condition: Expression | None
    result: Expression | None
    offset: int
    second_variable: str = ""


Expression: TypeAlias = Literal | Identifier | Select | Call | ListLiteral | MapLiteral | Comprehension

_TOKEN = re.compile(
    r"""
    (?P<space>[ \t\r\n\f]+|//[^\n]*)
  | (?P<text>(?:[bB][rR]?|[rR][bB]?)?(?:\"\"\"|'''|"|'))
  | (?P<float>(?:\d+\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\.\d+(?:[eE][+-]?\d+)?))
  | (?P<int>(?:0[xX][0-9a-fA-F]+|\d+)[uU]?)
  | (?P<name>[A-Za-z_][A-Za-z0-9_]*|`[A-Za-z0-9_.\-/ ]+`)
  | (?P<operator>&&|\|\||==|!=|<=|>=|[-+*/%<>!?:.,()\[\]{}])
    """,
    re.VERBOSE,
)
RESERVED = frozenset(
    {"as", "break", "const", "continue", "else", "for", "function", "if", "import", "let", "loop", "package"}
    | {"namespace", "return", "var", "void", "while"}
)
"""Words that the language keeps for itself."""
_ESCAPES = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
    "\\": "\\", "'": "'", '"': '"', "`": "`", "?": "?",
}  # fmt: skip
_RELATIONS = ("==", "!=", "<=", ">=", "<", ">", "in")
_COMPREHENSIONS = {
    "all": (2, 3),
    "exists": (2, 3),
    "exists_one": (2,),
    "map": (2, 3),
    "filter": (2,),
    "optMap": (2,),
}


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    offset: int
    value: object = None


def _scan(source: str) -> list[_Token]:
    tokens: list[_Token] = []
    offset = 0
    while offset < len(source):
        match = _TOKEN.match(source, offset)
        if match is None:
            raise CompileError(
                f"Syntax error: token recognition error at: '{source[offset]}'", source, offset
            )
        kind = str(match.lastgroup)
        end = match.end()
        if kind == "text":
            value, end = _text(source, match.group(), offset, end)
            tokens.append(_Token("text", match.group(), offset, value))
        elif kind != "space":
            tokens.append(_Token(kind, match.group(), offset))
        offset = end
    tokens.append(_Token("end", "<EOF>", len(source)))
    return tokens


def _text(source: str, opening: str, start: int, position: int) -> tuple[object, int]:
    quote = opening.lstrip("bBrR")
    prefix = opening[: len(opening) - len(quote)].lower()
    out: list[str] = []
    while True:
        if source.startswith(quote, position):
            position += len(quote)
            break
        if position >= len(source) or (len(quote) == 1 and source[position] == "\n"):
            raise CompileError("Syntax error: unterminated string literal", source, start)
        character = source[position]
        if character != "\\" or "r" in prefix:
            out.append(character)
            position += 1
            continue
        escape = source[position + 1 : position + 2]
        if escape in _ESCAPES:
            out.append(_ESCAPES[escape])
            position += 2
            continue
        width = {"x": 2, "X": 2, "u": 4, "U": 8}.get(escape)
        digits = source[position + 2 : position + 2 + width] if width else source[position + 1 : position + 4]
        try:
            out.append(chr(int(digits, 16 if width else 8)))
        except (ValueError, OverflowError):
            raise CompileError("Syntax error: unable to unescape string", source, position) from None
        position += 2 + width if width else 4
    text = "".join(out)
    return (text.encode() if "b" in prefix else text), position


def parse(source: str) -> Expression:
    """Parse an expression.

    Raises:
        CompileError: the text is no expression; it shows the place.
    """
    parser = _Parser(source, _scan(source))
    expression = parser.expression()
    parser.expect_end()
    return expression


@dataclass(slots=True)
class _Parser:
    source: str
    tokens: list[_Token]
    position: int = 0
    depth: int = field(default=0)

    # -- tokens ------------------------------------------------------------------------------------

    def peek(self) -> _Token:
        return self.tokens[self.position]

    def at(self, *texts: str) -> bool:
        token = self.peek()
        return token.kind in ("operator", "name") and token.text in texts

    def take(self) -> _Token:
        token = self.tokens[self.position]
        self.position += 1
        return token

    def expect(self, text: str) -> _Token:
        if not self.at(text):
            self.fail(f"expecting '{text}'")
        return self.take()

    def expect_end(self) -> None:
        if self.peek().kind != "end":
            self.fail("expecting <EOF>")

    def fail(self, expected: str) -> None:
        token = self.peek()
        raise CompileError(
            f"Syntax error: mismatched input '{token.text}' {expected}", self.source, token.offset
        )

    # -- grammar -----------------------------------------------------------------------------------

    def expression(self) -> Expression:
        self.depth += 1
        if self.depth > 100:
            raise CompileError("Expression recursion limit exceeded", self.source, self.peek().offset)
        condition = self._binary(0)
        if self.at("?"):
            offset = self.take().offset
            then = self._binary(0)
            self.expect(":")
            condition = Call("_?_:_", None, (condition, then, self.expression()), offset)
        self.depth -= 1
        return condition

    _LEVELS = (("||",), ("&&",), _RELATIONS, ("+", "-"), ("*", "/", "%"))

    def _binary(self, level: int) -> Expression:
        if level == len(self._LEVELS):
            return self._unary()
        left = self._binary(level + 1)
        while self.at(*self._LEVELS[level]):
            token = self.take()
            left = Call(f"_{token.text}_", None, (left, self._binary(level + 1)), token.offset)
        return left

    def _unary(self) -> Expression:
        if self.at("!"):
            offset = self.take().offset
            return Call("!_", None, (self._unary(),), offset)
        if self.at("-"):
            offset = self.take().offset
            operand = self._unary()
            if isinstance(operand, Literal) and type(operand.value) in (int, float) and not operand.unsigned:
                return Literal(-operand.value, offset)  # type: ignore[operator]
            return Call("-_", None, (operand,), offset)
        return self._member(self._primary())

    def _member(self, operand: Expression) -> Expression:
        while True:
            if self.at("."):
                offset = self.take().offset
                optional = self.at("?")
                if optional:
                    self.take()
                token = self.take()
                if token.kind != "name":
                    self.position -= 1
                    self.fail("expecting a field name")
                if self.at("(") and not optional:
                    self.take()
                    operand = self._method(operand, token, self._arguments(")"))
                else:
                    operand = Select(operand, token.text.strip("`"), offset, optional=optional)
            elif self.at("["):
                offset = self.take().offset
                optional = self.at("?")
                if optional:
                    self.take()
                index = self.expression()
                self.expect("]")
                operand = Call("_[?_]" if optional else "_[_]", None, (operand, index), offset)
            else:
                return operand

    def _method(self, target: Expression, name: _Token, arguments: tuple[Expression, ...]) -> Expression:
        if len(arguments) not in _COMPREHENSIONS.get(name.text, ()):
            return Call(name.text, target, arguments, name.offset)
        first = arguments[0]
        if not isinstance(first, Identifier):
            raise CompileError("argument must be a simple name", self.source, first.offset)
        if name.text == "map":
            condition = arguments[1] if len(arguments) == 3 else None
            return Comprehension("map", target, first.name, condition, arguments[-1], name.offset)
        if name.text == "optMap":
            return Comprehension("optMap", target, first.name, None, arguments[1], name.offset)
        second = ""
        if len(arguments) == 3:
            if not isinstance(arguments[1], Identifier):
                raise CompileError("argument must be a simple name", self.source, arguments[1].offset)
            second = arguments[1].name
        return Comprehension(name.text, target, first.name, arguments[-1], None, name.offset, second)

    def _arguments(self, closing: str) -> tuple[Expression, ...]:
        arguments: list[Expression] = []
        while not self.at(closing):
            arguments.append(self.expression())
            if not self.at(","):
                break
            self.take()
        self.expect(closing)
        return tuple(arguments)

    def _primary(self) -> Expression:
        token = self.take()
        if token.kind == "text":
            return Literal(token.value, token.offset)
        if token.kind == "float":
            return Literal(float(token.text), token.offset)
        if token.kind == "int":
            return self._integer(token)
        if token.kind == "name":
            return self._name(token)
        if token.text == "(" and token.kind == "operator":
            inner = self.expression()
            self.expect(")")
            return inner
        if token.text == "[" and token.kind == "operator":
            return ListLiteral(self._arguments("]"), token.offset)
        if token.text == "{" and token.kind == "operator":
            return self._map(token)
        if token.text == "." and token.kind == "operator" and self.peek().kind == "name":
            return self._name(self.take())
        self.position -= 1
        self.fail("expecting an expression")
        raise AssertionError("unreachable")

    def _integer(self, token: _Token) -> Literal:
        digits = token.text.rstrip("uU")
        value = int(digits, 16 if digits[:2].lower() == "0x" else 10)
        unsigned = digits != token.text
        # 2**63 itself is let through for the sake of a minus sign before it.
        if value > (2**64 - 1 if unsigned else 2**63):
            raise CompileError("invalid int literal", self.source, token.offset)
        return Literal(value, token.offset, unsigned)

    def _name(self, token: _Token) -> Expression:
        constants = {"true": True, "false": False, "null": None}
        if token.text in constants:
            return Literal(constants[token.text], token.offset)
        if token.text in RESERVED:
            raise CompileError(f"reserved identifier: {token.text}", self.source, token.offset)
        if not self.at("("):
            return Identifier(token.text, token.offset)
        self.take()
        arguments = self._arguments(")")
        if token.text == "has":
            if len(arguments) == 1 and isinstance(arguments[0], Select):
                select = arguments[0]
                return Select(select.operand, select.field, select.offset, test_only=True)
            raise CompileError("invalid argument to has() macro", self.source, token.offset)
        return Call(token.text, None, arguments, token.offset)

    def _map(self, token: _Token) -> MapLiteral:
        entries: list[tuple[Expression, Expression]] = []
        while not self.at("}"):
            key = self.expression()
            self.expect(":")
            entries.append((key, self.expression()))
            if not self.at(","):
                break
            self.take()
        self.expect("}")
        return MapLiteral(tuple(entries), token.offset)
