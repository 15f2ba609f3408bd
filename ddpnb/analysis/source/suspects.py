"""Which line made the ranks part? The statements that only some ranks run, or run with their own numbers.

A replica that silently differs stands nowhere: no stack shows the moment. The syntax tree of the
user's file often does: a statement that depends on the rank and has to do with what differs.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Protocol

from ddpnb.analysis.source.branches import tree
from ddpnb.analysis.source.expressions import whole_text
from ddpnb.model.calls import NO_SITE, Site
from ddpnb.model.recording import Recording
from ddpnb.model.replicas import Sample

Words = re.Pattern[str]


class Placed(Protocol):
    """What was seen at a line."""

    @property
    def site(self) -> Site: ...


PARAMETERS: Words = re.compile(
    r"copy_|add_|sub_|mul_|div_|fill_|zero_|normal_|uniform_|xavier|kaiming|orthogonal|constant_|\.data\b|load_state_dict"
    r"|reset_parameters|weight|param|bias|init|perturb|noise|ema|average|swap|\.apply\(|state"
)
SYNC: Words = re.compile(r"no_sync|accum|nullcontext|require_backward_grad_sync|micro|sync|\.step\(")
OPTIMIZER: Words = re.compile(
    r"\blr\b|learning_rate|momentum|weight_decay|betas?\b|param_groups|optim|schedul|\.step\(|SGD|Adam|warm"
)
GRADIENTS: Words = re.compile(r"grad|clip|scale|mul_|div_|zero_|norm")
BUFFERS: Words = re.compile(
    r"running|buffer|copy_|fill_|zero_|momentum|eval\(|train\(|reset|load_state_dict|stat|count|ema"
)
LOSS: Words = re.compile(r"loss|criterion|reduction|/|\*|scale|weight|mean\(|sum\(")
DATA: Words = re.compile(r"nan|inf|data|batch|sample|x\b|input|feature|divide|/|log|sqrt|exp", re.IGNORECASE)
ANY: Words = re.compile(r"")
NONE: Words = re.compile(r"(?!)")  # all ranks do it: the line is where it shows

_RANK = re.compile(r"rank|is_(main|master|leader|chief|primary)|main_process|process_index", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Statement:
    """A simple statement (or a header) of the user's file, and what it has to do with the rank.

    ``conditions``: those it stands under, innermost last; ``of_rank``: one of them, or the statement
    itself, depends on the rank; ``writes``: names of what it changes in place.
    """

    line: int
    text: str
    function: str
    conditions: tuple[str, ...]
    of_rank: bool
    writes: frozenset[str]
    attributes: frozenset[str]


_IN_PLACE = frozenset({"reset_parameters", "load_state_dict", "apply", "requires_grad_"})
# The device depends on the rank everywhere, and so does the seed of what is drawn: neither makes ranks part.
_PERSONAL = frozenset({"to", "cuda", "device", "set_device", "to_empty", "manual_seed", "manual_seed_all", "seed"})
_PLACES = frozenset({"device", "device_ids", "output_device", "map_location"})


@lru_cache(maxsize=64)
def statements(source: str) -> tuple[Statement, ...]:
    """Every simple statement of a file, in order."""
    module = tree(source)
    if module is None:
        return ()
    return tuple(_walk(module.body, (), False, "<module>", _tainted(module)))


def _tainted(module: ast.AST) -> frozenset[str]:
    """Variables that are computed from the rank."""
    names: set[str] = set()
    for _ in range(3):
        for node in ast.walk(module):
            if isinstance(node, (ast.Assign, ast.AnnAssign)) and _of_rank(node.value, names):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names.update(name for target in targets for name in _targets(target))
    return frozenset(names)


def _targets(node: ast.AST) -> Iterator[str]:
    """Names of what is assigned: of ``self.rate`` that of the attribute, not of the whole object."""
    if isinstance(node, (ast.Tuple, ast.List)):
        for part in node.elts:
            yield from _targets(part)
    elif isinstance(node, (ast.Starred, ast.Subscript)):
        yield from _targets(node.value)
    elif name := _name(node):
        yield name


def _of_rank(node: ast.AST | None, tainted: Iterable[str]) -> bool:
    if node is None:
        return False
    for one in _deciding(node):
        name = _name(one)
        if isinstance(one, ast.Constant) and one.value in ("RANK", "LOCAL_RANK"):
            return True
        if name and (_RANK.search(name) or name in tainted):
            return True
    return False


def _name(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _deciding(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of a statement, but for those that say on which device something is, or give a seed."""
    waiting = [node]
    while waiting:
        one = waiting.pop()
        yield one
        if isinstance(one, ast.Call):
            waiting.append(one.func)
            if _name(one.func) not in _PERSONAL:
                waiting += one.args
                waiting += [keyword.value for keyword in one.keywords if keyword.arg not in _PLACES]
        else:
            waiting += ast.iter_child_nodes(one)


def _arguments(node: ast.AST) -> list[ast.AST]:
    """Of a method that is called for its effect the arguments: what it is called on was made elsewhere."""
    call = node.value if isinstance(node, ast.Expr) else None
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
        return [*call.args, *(keyword.value for keyword in call.keywords)]
    return [node]


def _walk(
    body: Iterable[ast.stmt], conditions: tuple[str, ...], ranked: bool, function: str, tainted: frozenset[str]
) -> Iterator[Statement]:
    def told(node: ast.AST, line: int) -> Statement:
        attributes = frozenset(one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute))
        mine = ranked or any(_of_rank(part, tainted) for part in _arguments(node))
        return Statement(line, _text(node), function, conditions, mine, frozenset(_writes(node)), attributes)

    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield from _walk(node.body, (), False, node.name, tainted)
        elif isinstance(node, ast.If):
            test, own = _text(node.test), ranked or _of_rank(node.test, tainted)
            yield from _walk(node.body, (*conditions, test), own, function, tainted)
            yield from _walk(node.orelse, (*conditions, f"not ({test})"), own, function, tainted)
        elif isinstance(node, ast.Match):
            yield told(node.subject, node.lineno)
            own = ranked or _of_rank(node.subject, tainted)
            for case in node.cases:
                test = f"{_text(node.subject)} is {_text(case.pattern)}"
                yield from _walk(case.body, (*conditions, test), own, function, tainted)
        elif isinstance(node, (ast.For, ast.While, ast.AsyncFor, ast.With, ast.AsyncWith, ast.Try, ast.TryStar)):
            for header in _headers(node):
                yield told(header, node.lineno)
            parts = [node.body, getattr(node, "orelse", []), getattr(node, "finalbody", [])]
            parts += [handler.body for handler in getattr(node, "handlers", [])]
            for part in parts:
                yield from _walk(part, conditions, ranked, function, tainted)
        else:
            yield told(node, node.lineno)


def _text(node: ast.AST) -> str:
    try:
        return whole_text(node)[:200]
    except RecursionError:  # a sum of a thousand terms
        return "..."


def _headers(node: ast.stmt) -> list[ast.expr]:
    if isinstance(node, ast.While):
        return [node.test]
    if isinstance(node, (ast.For, ast.AsyncFor)):
        return [node.iter]
    return [item.context_expr for item in node.items] if isinstance(node, (ast.With, ast.AsyncWith)) else []


def _names(node: ast.AST) -> Iterator[str]:
    for one in ast.walk(node):
        if isinstance(one, ast.Name):
            yield one.id
        elif isinstance(one, ast.Attribute):
            yield one.attr


def _writes(node: ast.AST) -> Iterator[str]:
    """Names of what a statement changes in place: targets that are parts of something, methods with a final _."""
    if isinstance(node, (ast.Assign, ast.AugAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets:
            if isinstance(target, (ast.Attribute, ast.Subscript)) or isinstance(node, ast.AugAssign):
                yield from _names(target)
    for call in ast.walk(node):
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            continue
        name = call.func.attr
        if (name.endswith("_") and not name.endswith("__")) or name in _IN_PLACE:
            yield from _names(call.func.value)
            if isinstance(call.func.value, (ast.Name, ast.Attribute)) and "init" in set(_names(call.func.value)):
                for argument in call.args[:1]:
                    yield from _names(argument)


_COMMON = frozenset({"weight", "bias", "data", "p", "param", "params", "parameters", "q", "v", "value", "tensor", "t"})
_HARMLESS = re.compile(
    r"(\w+\.)*(print|log|info|debug|report|write|add_scalar)\(|log(ger|ging)?\.|(self\.)?(\w*rank|local_rank|world(_size)?|size|device|is_main\w*|is_master\w*) = |return$|pass$"
    r"|(torch\.|np\.random\.|random\.)?(cuda\.)?(set_device|manual_seed|seed|set_seed|seed_everything)\b|dist\.(init|destroy)|\w*\.?barrier\(|torch\.save|os\.|import |from |raise |assert "
    r"|\w*(opt|optim|optimizer)\.zero_grad"
    r"|(?!.*(?:load_state_dict|\w_\()).*\bstate_dict\(\)"  # it is read
)


def lines(
    recording: Recording,
    samples: Mapping[int, Placed],
    culprits: Iterable[int],
    words: Words,
    tensors: Iterable[str] = (),
    wanted: Words | None = None,
) -> tuple[tuple[tuple[int, Site], ...], list[str]]:
    """Where culprits and the others are pointed to, and why there.

    Culprits: the statement that has to do with it and depends on the rank, or that changes what
    differs in place; without one, the sample's own line.
    """
    chosen = list(culprits)
    places: list[tuple[int, Site]] = []
    reasons: list[str] = []
    found = None
    if chosen and chosen[0] in samples and samples[chosen[0]].site != NO_SITE:
        site = samples[chosen[0]].site
        found = best(recording, site, words, tensors, wanted)
        if found is not None:
            why = f", if {found.conditions[-1]}" if found.conditions else ""
            reasons.append(f"Look at {site.file}:{found.line}: {found.text.splitlines()[0][:100]}{why}.")
    for rank in [*chosen, *(r for r in sorted(samples) if r not in chosen)]:
        if rank not in samples:
            continue
        site = samples[rank].site
        if found is not None and rank in chosen:
            site = replace(site, line=found.line, function=found.function)
        places.append((rank, site))
    return tuple(places), reasons


def by_condition(
    recording: Recording,
    samples: Mapping[int, Sample],
    culprits: tuple[int, ...],
    words: Words,
    tensors: Iterable[str] = (),
    wanted: Words | None = None,
) -> tuple[int, ...]:
    """The ranks that run the most likely statement, where it stands under conditions like ``rank == 0``; else none."""
    site = samples[culprits[0]].site if culprits and culprits[0] in samples else NO_SITE
    found = best(recording, site, words, tensors, wanted) if site != NO_SITE else None
    if found is None:
        return ()
    ranks = _under(found, recording.sources.get(site.file, ""), sorted(samples), len(recording.ranks))
    return tuple(ranks) if 2 * len(ranks) == len(samples) else ()


def ranks_of(source: str, line: int, ranks: list[int], world: int) -> list[int]:
    """Those of the ranks that run a line, as far as conditions like ``rank == 0`` around it tell."""
    found = next((one for one in statements(source) if one.line == line), None)
    return ranks if found is None else _under(found, source, ranks, world)


def _under(found: Statement, source: str, ranks: list[int], world: int) -> list[int]:
    conditions = found.conditions or _of_caller(found.function, source)
    told = [holds for text in conditions if (holds := _on_ranks(_spelled_out(text, source))) is not None]
    return [rank for rank in ranks if all(holds(rank, world) for holds in told)]


def _of_caller(function: str, source: str) -> tuple[str, ...]:
    """The conditions of the one statement that calls a function; none where there are several, or none."""
    call = re.compile(rf"\b{re.escape(function)}\(")
    callers = [one for one in statements(source) if call.search(one.text) and one.function != function]
    return callers[0].conditions if len(callers) == 1 else ()


def singled_out(recording: Recording, sites: Mapping[int, Site], culprits: tuple[int, ...]) -> tuple[int, ...]:
    """Of as many ranks on either side those whose line stands under ``rank == 0`` or the like; else ``culprits``."""
    if 2 * len(culprits) != len(sites):
        return culprits
    chosen = []
    for rank, site in sorted(sites.items()):
        source = recording.sources.get(site.file, "")
        found = next((one for one in statements(source) if one.line == site.line), None)
        told = [_SIMPLE.match(_spelled_out(text, source)) for text in (found.conditions if found is not None else ())]
        if any(match and match[2] == "==" and not match[1] for match in told):
            chosen.append(rank)
    return tuple(chosen) if len(chosen) == len(culprits) else culprits


_SIMPLE = re.compile(
    r"(not \()?(?:\w+\.)*\w*rank(?:\(\))? (==|!=|>|<|>=|<=) (?:(\d{1,4})|(?:\w+\.)*\w*(?:world|size)\w*(?:\(\))? - 1)\)?$",
    re.IGNORECASE,
)


def _spelled_out(condition: str, source: str) -> str:
    """A condition that is but a name, as what was given that name, if that was only done once: ``main = rank == 0``."""
    match = re.fullmatch(r"(not \()?((?:\w+\.)*\w+)\)?", condition)
    if match is None:
        return condition
    given = re.findall(rf"^\s*{re.escape(match[2])} = (.+?)\s*(?:#.*)?$", source, re.MULTILINE)
    return f"{match[1] or ''}{given[0]}{')' if match[1] else ''}" if len(given) == 1 else condition


def _on_ranks(text: str) -> Callable[[int, int], bool] | None:
    """A condition as a function of rank and world size, if it is as plain as ``rank == 0`` or ``not (rank == world - 1)``."""
    match = _SIMPLE.match(text)
    if match is None:
        return None
    negated, sign, number = match[1] is not None, match[2], match[3]
    compare = _SIGNS[sign]
    return lambda rank, world: compare(rank, int(number) if number is not None else world - 1) != negated


_SIGNS: dict[str, Callable[[int, int], bool]] = {
    "==": operator.eq, "!=": operator.ne, ">": operator.gt, "<": operator.lt, ">=": operator.ge, "<=": operator.le,
}  # fmt: skip


def point(recording: Recording, site: Site, words: Words, tensors: Iterable[str] = ()) -> Site:
    """The line of the most likely statement in the file of ``site``, or ``site`` itself."""
    found = best(recording, site, words, tensors)
    return site if found is None else replace(site, line=found.line, function=found.function)


def best(
    recording: Recording, site: Site, words: Words, tensors: Iterable[str] = (), wanted: Words | None = None
) -> Statement | None:
    """The most likely statement in the file of ``site``; None when nothing speaks for any.

    ``wanted``: what a statement may be chosen for alone, whether it depends on the rank or not.
    """
    parts = {part for name in tensors for part in name.split(".") if not part.isdigit()}
    special, common = parts - _COMMON, _COMMON

    def score(one: Statement) -> float:
        if _HARMLESS.match(one.text):
            return 0
        fits = bool(words.search(one.text))
        total = 4.0 * (one.of_rank and fits) + 1.0 * bool(fits and one.conditions)
        total += 3.0 * bool(wanted and wanted.search(one.text))
        if tensors and one.function != "__init__":  # there attributes are made, not changed
            total += 3.5 * bool(one.writes & special) + 2.0 * bool(one.writes & common)
            total += 1.5 * bool(one.conditions and one.attributes & special)
        return total

    candidates = [(score(one), one) for one in statements(recording.sources.get(site.file, ""))]
    candidates = [(points, one) for points, one in candidates if points >= 2]
    if not candidates:
        return None
    return max(candidates, key=lambda c: (c[0], c[1].function == site.function, -abs(c[1].line - site.line)))[1]


def bypass(recording: Recording, sample: Sample) -> Site:
    """Where the wrapped module was called without its wrapper: as seen, or else as the source says."""
    number = sample.facts.get("bypass_site")
    if isinstance(number, dict):
        return Site.from_json(number)
    source = recording.sources.get(sample.site.file, "")
    found = [
        place
        for place, line in enumerate(source.splitlines(), 1)
        if re.search(r"\.module\s*\(|\.module\.\w+\s*\(", line) and not line.lstrip().startswith("#")
    ]
    nearest = min(found, key=lambda place: abs(place - sample.site.line), default=sample.site.line)
    return replace(sample.site, line=nearest)
