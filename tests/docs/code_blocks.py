"""The fenced blocks of a Markdown text, and what is checked in those with Python: names, arguments and attributes of ddpnb."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from markdown_it import MarkdownIt

import ddpnb

_MARKDOWN = MarkdownIt("commonmark").enable("table")
#: what variables of these names hold in all documents
VARIABLES = {
    "ddpnb": ddpnb,
    "world": ddpnb.World,
    "run": ddpnb.Run,
    "job": ddpnb.Job,
    "recording": ddpnb.Recording,
    "startup": ddpnb.Startup,
    "diagnosis": ddpnb.Diagnosis,
    "reenactment": ddpnb.Reenactment,
    "bisection": ddpnb.Bisection,
}


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text and the line on which it begins."""

    language: str
    text: str
    line: int


def blocks(markdown: str) -> Iterator[Block]:
    """The fenced blocks of a text."""
    for token in _MARKDOWN.parse(markdown):
        if token.type == "fence":
            language = token.info.split()[0] if token.info.strip() else ""
            yield Block(language, token.content, token.map[0] + 1)


def blocks_under(markdown: str, heading: str) -> list[Block]:
    """The fenced blocks below a heading of the second level."""
    parts = re.split(r"^## (.*)$", markdown, flags=re.MULTILINE)
    return list(blocks(dict(zip(parts[1::2], parts[2::2], strict=True))[heading]))


def inline_code(markdown: str) -> Iterator[str]:
    """The inline code of a text, that of tables included."""
    for token in _MARKDOWN.parse(markdown):
        for child in token.children or ():
            if child.type == "code_inline":
                yield child.content


def commands(block: Block) -> Iterator[str]:
    """The command lines of ddpnb in a block of a shell; lines that end with a backslash are continued."""
    if block.language not in ("", "sh", "bash", "console", "shell"):
        return
    prompt = re.search(r"^\$ ", block.text, re.MULTILINE) is not None
    for line in block.text.replace("\\\n", " ").splitlines():
        typed = line.removeprefix("$ ") if line.startswith("$ ") else "" if prompt else line
        typed = re.sub(r"\s#( .*)?$", "", typed).strip()
        typed = re.sub(r"^[\w -]+ \| (?=ddpnb )", "", typed)  # kubectl logs worker-0 | ddpnb diagnose -
        if typed.startswith("ddpnb ") and not typed.startswith("ddpnb: "):
            yield typed


def misuses(source: str) -> Iterator[str]:
    """What a Python text does with ddpnb that does not exist: an attribute, a method, an argument."""
    known = dict(VARIABLES)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef):  # its parameters may have any name
            known = {name: kind for name, kind in known.items() if name not in {a.arg for a in node.args.args}}
    for statement in _statements(ast.parse(source).body):
        for node in ast.walk(statement) if not isinstance(statement, ast.With) else _heads(statement):
            if isinstance(node, ast.Attribute):
                yield from _attribute(node, known)
            if isinstance(node, ast.Call):
                yield from _call(node, known)
        _assign(statement, known)


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for statement in body:
        yield statement
        if isinstance(statement, ast.With):
            yield from _statements(statement.body)


def _heads(statement: ast.With) -> Iterator[ast.AST]:
    for item in statement.items:
        yield from ast.walk(item.context_expr)


def _assign(statement: ast.stmt, known: dict[str, object]) -> None:
    """What a name holds after this statement."""
    if isinstance(statement, ast.With):
        pairs = [(item.optional_vars, item.context_expr) for item in statement.items]
    elif isinstance(statement, ast.Assign):
        pairs = [(statement.targets[0], statement.value)]
    else:
        return
    for target, value in pairs:
        if isinstance(target, ast.Name):
            kind = _kind(value, known)
            known.pop(target.id, None)
            if kind is not None:
                known[target.id] = kind


def _kind(node: ast.expr, known: dict[str, object]) -> object | None:
    """The module, class or function that an expression is, or the class of its value; None if it is not known."""
    if isinstance(node, ast.Name):
        return known.get(node.id)
    if isinstance(node, ast.Attribute):
        owner = _kind(node.value, known)
        if isinstance(owner, types.ModuleType):
            return getattr(owner, node.attr, None)
        member = inspect.getattr_static(owner, node.attr, None) if inspect.isclass(owner) else None
        return _returned(member.fget) if isinstance(member, property) else member
    if isinstance(node, ast.Call):
        called = _kind(node.func, known)
        if inspect.isclass(called):
            return called
        return _returned(called) if inspect.isfunction(called) else None
    return None


def _returned(function: object) -> object | None:
    """The public class that a function returns."""
    name = str(typing.cast("typing.Any", function).__annotations__.get("return", "")).strip("'\"")
    if name == "Self":
        return getattr(ddpnb, function.__qualname__.split(".")[0], None)
    return getattr(ddpnb, name.removesuffix(" | None"), None) if name.removesuffix(" | None") in ddpnb.__all__ else None


def _attribute(node: ast.Attribute, known: dict[str, object]) -> Iterator[str]:
    owner = _kind(node.value, known)
    if isinstance(owner, types.ModuleType) and not hasattr(owner, node.attr):
        yield f"ddpnb has no {node.attr}"
    if inspect.isclass(owner):
        if not hasattr(owner, node.attr) and node.attr not in _fields(owner):
            yield f"{owner.__name__} has no {node.attr}"


@cache
def _fields(owner: type) -> frozenset[str]:
    """What objects of a class have beside what the class has: fields, and what its methods set."""
    fields = set(getattr(owner, "__dataclass_fields__", ()))
    for kind in owner.__mro__:
        if kind.__module__.startswith("ddpnb"):
            tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
            fields |= {
                node.attr
                for node in ast.walk(tree)
                if isinstance(node, ast.Attribute)
                and isinstance(node.ctx, ast.Store)
                and ast.unparse(node.value) == "self"
            }
    return frozenset(fields)


def _call(node: ast.Call, known: dict[str, object]) -> Iterator[str]:
    called = _kind(node.func, known)
    if not inspect.isfunction(called) or any(isinstance(part, ast.Starred) for part in node.args):
        return
    owner = _kind(node.func.value, known) if isinstance(node.func, ast.Attribute) else None
    given = [None] * (len(node.args) + inspect.isclass(owner))
    if any(isinstance(part, ast.Constant) and part.value is ... for part in node.args):  # ddpnb.bisect(...)
        return
    try:
        inspect.signature(called).bind(*given, **{word.arg: None for word in node.keywords if word.arg})
    except TypeError as error:
        yield f"{ast.unparse(node)}: {error}"
