"""Why a part of a model was not used in the loss, from the source of the user's files.

A parameter without a gradient belongs to a module that is the attribute ``self.<name>`` of another. The
uses of that attribute are looked up in the classes that have it: under which condition, under
``torch.no_grad()``, or nowhere.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ddpnb.recording.findings import Hint
from ddpnb.recording.source.branches import FUNCTIONS, decisions, relation, tree
from ddpnb.recording.source.expressions import last_name, whole_text

_MOST_FILES = 40
_LONGEST_FILE = 400_000
_SETUP = ("__init__", "reset_parameters", "_init_weights", "init_weights")


def modules(parameters: Iterable[str]) -> list[str]:
    """The modules to which parameters belong, in order; a parameter of the model itself is returned as it is."""
    return list(dict.fromkeys(name.rpartition(".")[0] or name for name in parameters))


def use(parameters: Sequence[str], sources: Mapping[str, str]) -> Hint | None:
    """Where, and under which condition, these parameters' modules are used; None where there are several such places."""
    hints: list[Hint] = []
    open_uses: list[Hint] = []
    explained: set[str] = set()
    for name in parameters[:256]:
        parts = [part for part in name.split(".") if not part.isdigit()]
        # From the inside outwards: the condition may stand around the whole block.
        inside = parts[:-1] or parts
        for depth in reversed(range(len(inside))):
            attribute = inside[depth]
            if attribute in explained:
                break
            owners = _made_as(inside[depth - 1], sources) if depth else frozenset[str]()
            uses = [use for file, source in _files(sources) for use in _uses(attribute, owners, file, source)]
            guarded = [hint for is_guarded, hint in uses if is_guarded]
            open_uses += [hint for is_guarded, hint in uses if not is_guarded]
            if guarded:
                explained.add(attribute)
                hints += [hint for hint in guarded if hint not in hints]
                break
        if len(hints) >= 4:
            break
    hints = hints or open_uses[:1]
    return hints[0] if len(hints) == 1 else None


def _files(sources: Mapping[str, str]) -> list[tuple[str, str]]:
    return [(file, text) for file, text in list(sources.items())[:_MOST_FILES] if len(text) < _LONGEST_FILE]


def _made_as(attribute: str, sources: Mapping[str, str]) -> frozenset[str]:
    """The classes of which ``self.<attribute>`` is made: ``self.encoder = Encoder(...)``."""
    pattern = re.compile(rf"\bself\.{re.escape(attribute)}(?:: [\w.]{{1,80}})? = (?:[\w.]{{1,80}}\.)?(\w{{1,80}})\(")
    return frozenset(name for _, source in _files(sources) for name in pattern.findall(source))


def _uses(attribute: str, owners: frozenset[str], file: str, source: str) -> list[tuple[bool, Hint]]:
    """Where classes use the attribute: whether something guards it, and the hint."""
    if not re.search(rf"\bself\.{re.escape(attribute)}\b", source):
        return []
    parsed = tree(source)
    try:
        classes = [node for node in ast.walk(parsed or ast.Module([], [])) if isinstance(node, ast.ClassDef)]
        known = [owner for owner in classes if owner.name in owners]
        return [use for owner in known or classes for use in _uses_in(attribute, file, source, owner)]
    except RecursionError:
        return []


def _uses_in(attribute: str, file: str, source: str, owner: ast.ClassDef) -> list[tuple[bool, Hint]]:
    parents = {child: node for node in ast.walk(owner) for child in ast.iter_child_nodes(node)}
    places = [node for node in parents if isinstance(node, ast.Attribute) and _is_self(node, attribute)]
    made = [node.lineno for node in places if isinstance(node.ctx, ast.Store)]
    used = [node for node in places if isinstance(node.ctx, ast.Load) and _function(node, parents) not in _SETUP]
    if not used:
        nowhere = f"{owner.name} creates self.{attribute} here, but none of its methods uses it"
        return [(True, Hint(file, min(made), nowhere))] if made else []
    uses: list[tuple[bool, Hint]] = []
    for node in sorted(used, key=lambda place: place.lineno)[:8]:
        why = _around(node, parents)
        why += [text for line in (node.lineno, *_rounds(node, parents)) for text in decisions(source, line)]
        if not why:
            reason = f"self.{attribute} is used here whenever {_function(node, parents)} runs: its result may not reach the loss"
            return [(False, Hint(file, node.lineno, reason))]
        reason = f"self.{attribute} is used here. {' '.join(dict.fromkeys(why[:2]))}".rstrip(".")
        uses.append((True, Hint(file, node.lineno, reason)))
    return uses


def _is_self(node: ast.Attribute, attribute: str) -> bool:
    return node.attr == attribute and isinstance(node.value, ast.Name) and node.value.id == "self"


def _upwards(node: ast.AST, parents: Mapping[ast.AST, ast.AST]) -> Iterator[tuple[ast.AST, ast.AST]]:
    while node in parents:
        yield node, parents[node]
        node = parents[node]


def _function(node: ast.AST, parents: Mapping[ast.AST, ast.AST]) -> str:
    for _, parent in _upwards(node, parents):
        if isinstance(parent, FUNCTIONS):
            return parent.name
    return ""


def _around(node: ast.AST, parents: Mapping[ast.AST, ast.AST]) -> list[str]:
    """Conditions within the statement, and contexts that keep no graph."""
    texts: list[str] = []
    for child, parent in _upwards(node, parents):
        if isinstance(parent, ast.IfExp) and child is not parent.test:
            text = whole_text(parent.test)
            texts.append(
                f"Guarded by `if {text if child is parent.body else f'not ({text})'}` at line {parent.lineno}."
            )
        elif isinstance(parent, ast.BoolOp) and child is not parent.values[0]:
            said = "and" if isinstance(parent.op, ast.And) else "or"
            texts.append(f"Guarded by `{whole_text(parent.values[0])} {said} ...` at line {parent.lineno}.")
        elif isinstance(parent, (ast.With, ast.AsyncWith)) and child in parent.body:
            texts += [
                f"Line {parent.lineno} disables autograd: with {text}."
                for text in map(whole_text, parent.items)
                if _graphless(text)
            ]
        elif isinstance(parent, ast.Attribute) and parent.attr in ("detach", "item"):
            texts.append(f"Line {parent.lineno} detaches it from the graph: .{parent.attr}().")
        elif isinstance(parent, FUNCTIONS):
            decorators = map(whole_text, parent.decorator_list)
            texts += [f"Line {parent.lineno} disables autograd: @{text}." for text in decorators if _graphless(text)]
            break
    return texts


def _graphless(text: str) -> bool:
    return "no_grad" in text or "inference_mode" in text or "set_grad_enabled(False)" in text


def _rounds(node: ast.AST, parents: Mapping[ast.AST, ast.AST]) -> list[int]:
    """Where the modules of a list are called, if ``node`` is what a loop goes through."""
    for child, parent in _upwards(node, parents):
        if isinstance(parent, ast.For) and child is parent.iter:
            names = {part.id for part in ast.walk(parent.target) if isinstance(part, ast.Name)}
            return [
                call.lineno
                for statement in parent.body
                for call in ast.walk(statement)
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in names
            ][:4]
        if isinstance(parent, ast.stmt):
            break
    return []


_WRAPPERS = ("DistributedDataParallel", "DDP")


def frozen_after_wrapping(parameters: Sequence[str], sources: Mapping[str, str]) -> list[tuple[str, int]]:
    """Places (file, line) that, by the text of the source, freeze these parameters' modules after the model was wrapped, in the same function."""
    attributes = {part for name in parameters[:256] for part in name.split(".")[:-1] if not part.isdigit()}
    places: list[tuple[str, int]] = []
    for file, source in _files(sources) if attributes else []:
        if "requires_grad" not in source:
            continue
        parsed = tree(source)
        nodes = list(ast.walk(parsed)) if parsed is not None else []
        wraps = [n.lineno for n in nodes if isinstance(n, ast.Call) and last_name(n.func) in _WRAPPERS]
        freezers = {node.name for node in nodes if isinstance(node, FUNCTIONS) and any(map(_off, ast.walk(node)))}
        for node in nodes:
            line = _freezes(node, attributes, freezers)
            if line and any(wrap < line and relation(source, wrap, line) == "sequence" for wrap in wraps):
                places.append((file, line))
    return list(dict.fromkeys(places))[:4]


def _freezes(node: ast.AST, attributes: set[str], freezers: set[str]) -> int:
    """The line, if ``node`` sets requires_grad to false for something under one of these attributes.

    ``freezers``: functions that do so for what they are given.
    """
    if isinstance(node, ast.Call) and last_name(node.func) in freezers:
        return node.lineno if any(_mentions(given, attributes) for given in node.args) else 0
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "requires_grad_":
        off = bool(node.args) and not (isinstance(node.args[0], ast.Constant) and node.args[0].value)
        return node.lineno if off and _mentions(node.func.value, attributes) else 0
    if isinstance(node, ast.For) and _mentions(node.iter, attributes):
        return next(filter(None, map(_off, ast.walk(node))), 0)
    return 0


def _off(node: ast.AST) -> int:
    """The line, if a loop's statement sets ``requires_grad`` to false."""
    if isinstance(node, ast.Assign) and not (isinstance(node.value, ast.Constant) and node.value.value):
        named = any(isinstance(target, ast.Attribute) and target.attr == "requires_grad" for target in node.targets)
        return node.lineno if named else 0
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "requires_grad_":
        return node.lineno if node.args else 0
    return 0


def _mentions(node: ast.expr, attributes: set[str]) -> bool:
    return any(isinstance(part, ast.Attribute) and part.attr in attributes for part in ast.walk(node))
