"""Which line made the ranks part? The statements that only some ranks run, or run with their own numbers.

A replica that silently differs stands nowhere: no stack shows the moment. The syntax tree of the
user's file often does: a statement that depends on the rank and has to do with what differs.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from ddpnb.analysis.branches import tree
from ddpnb.model.calls import NO_SITE, Site
from ddpnb.model.recording import Recording
from ddpnb.model.replicas import Sample

Words = re.Pattern[str]

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
class Suspect:
    """A statement that depends on the rank: its line, its text, and the condition it stands under."""

    line: int
    text: str
    condition: str
    function: str


@lru_cache(maxsize=64)
def suspects(source: str) -> tuple[Suspect, ...]:
    """Every simple statement of a file that only some ranks run, or that uses the rank itself."""
    module = tree(source)
    if module is None:
        return ()
    tainted = _tainted(module)
    return tuple(_walk(module.body, "", "<module>", tainted))


def _tainted(module: ast.AST) -> frozenset[str]:
    """Variables that are computed from the rank."""
    names: set[str] = set()
    for _ in range(3):
        for node in ast.walk(module):
            if isinstance(node, ast.Assign) and _of_rank(node.value, names):
                names.update(n.id for target in node.targets for n in ast.walk(target) if isinstance(n, ast.Name))
    return frozenset(names)


def _of_rank(node: ast.AST | None, tainted: Iterable[str]) -> bool:
    if node is None:
        return False
    for one in ast.walk(node):
        name = one.id if isinstance(one, ast.Name) else one.attr if isinstance(one, ast.Attribute) else ""
        if isinstance(one, ast.Constant) and one.value in ("RANK", "LOCAL_RANK"):
            return True
        if name and (_RANK.search(name) or name in tainted):
            return True
    return False


def _walk(body: list[ast.stmt], condition: str, function: str, tainted: frozenset[str]) -> Iterator[Suspect]:
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) or isinstance(node, ast.ClassDef):
            yield from _walk(node.body, "", node.name, tainted)
        elif isinstance(node, ast.If):
            test = ast.unparse(node.test)
            own = _of_rank(node.test, tainted)
            yield from _walk(node.body, test if own else condition, function, tainted)
            yield from _walk(node.orelse, f"not ({test})" if own else condition, function, tainted)
        elif isinstance(node, (ast.For, ast.While, ast.AsyncFor, ast.With, ast.AsyncWith, ast.Try)):
            headers = (
                [node.test]
                if isinstance(node, ast.While)
                else [node.iter]
                if isinstance(node, (ast.For, ast.AsyncFor))
                else []
            )
            headers += [item.context_expr for item in node.items] if isinstance(node, (ast.With, ast.AsyncWith)) else []
            for header in headers:
                if condition or _of_rank(header, tainted):
                    yield Suspect(node.lineno, ast.unparse(header)[:200], condition, function)
            for part in (node.body, getattr(node, "orelse", []), getattr(node, "finalbody", [])):
                yield from _walk(part, condition, function, tainted)
            for handler in getattr(node, "handlers", []):
                yield from _walk(handler.body, condition, function, tainted)
        elif condition or _uses_rank(node, tainted):
            yield Suspect(node.lineno, ast.unparse(node)[:200], condition, function)


def _uses_rank(node: ast.stmt, tainted: frozenset[str]) -> bool:
    value = getattr(node, "value", None)
    if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr, ast.Return)):
        return _of_rank(value, tainted)
    return False


def lines(
    recording: Recording, samples: Mapping[int, Sample], culprits: Iterable[int], words: Words
) -> tuple[tuple[tuple[int, Site], ...], list[str]]:
    """Where culprits and the others are pointed to, and why there.

    Culprits: the statement that depends on the rank and has to do with it, in the function of the
    sample's line or else anywhere in its file; without one, the sample's own line.
    """
    chosen = list(culprits)
    places: list[tuple[int, Site]] = []
    reasons: list[str] = []
    found = None
    if chosen and chosen[0] in samples and samples[chosen[0]].site != NO_SITE:
        site = samples[chosen[0]].site
        found = best(recording, site, words)
        if found is not None:
            when = f", only if {found.condition}" if found.condition else ""
            reasons.append(f"{site.file}:{found.line} depends on the rank: {found.text.splitlines()[0][:100]}{when}.")
    for rank in [*chosen, *(r for r in sorted(samples) if r not in chosen)]:
        if rank not in samples:
            continue
        site = samples[rank].site
        if found is not None and rank in chosen:
            site = replace(site, line=found.line, function=found.function)
        places.append((rank, site))
    return tuple(places), reasons


def best(recording: Recording, site: Site, words: Words) -> Suspect | None:
    """The most likely of the suspects in the file of ``site``."""
    candidates = [s for s in suspects(recording.sources.get(site.file, "")) if words.search(s.text)]
    candidates = [s for s in candidates if not _HARMLESS.match(s.text)]
    if not candidates:
        return None
    return min(candidates, key=lambda s: (not s.condition, s.function != site.function, abs(s.line - site.line)))


_HARMLESS = re.compile(
    r"print\(|log(ger|ging)?\.|(self\.)?(\w*rank|local_rank|world_size|device|is_main\w*|is_master\w*) = |return$|pass$"
    r"|torch\.(cuda\.)?(set_device|manual_seed)|dist\.(init|destroy)|\w*\.?barrier\(|torch\.save|os\.|import |raise |assert "
)


def bypass(recording: Recording, rank: int, sample: Sample) -> Site:
    """Where the wrapped module was called without its wrapper: as seen, or else as the source says."""
    number = sample.facts.get("bypass_site")
    if isinstance(number, dict):
        return Site.from_json(number)
    source = recording.sources.get(sample.site.file, "")
    for place, line in enumerate(source.splitlines(), 1):
        if re.search(r"\.module\s*\(|\.module\.\w+\s*\(", line) and not line.lstrip().startswith("#"):
            return replace(sample.site, line=place)
    return sample.site
