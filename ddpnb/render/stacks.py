"""The merged stacks as a document, a tree whose branches are labelled with ranks; and the frames of one rank, to choose from."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import ClassVar

from ddpnb.errors import UsageError
from ddpnb.recording import phrases
from ddpnb.recording.findings import Diagnosis
from ddpnb.recording.recording import Recording
from ddpnb.recording.stacks import Frame, Stack
from ddpnb.render import markup
from ddpnb.render.document import Block, Drawn, Inline, Items, Paragraph, Place, Span
from ddpnb.render.shown import Shown
from ddpnb.render.views.merged_stacks import Branch, merge
from ddpnb.rules.diagnose import diagnose
from ddpnb.texts import relative

_LONGEST = 200  # characters of a file's name
_FUNCTION = 80  # of a function's
_PATH = 1000  # and of a path
_DEEP = 12  # frames that are indented each below the other
_LIBRARY = 3  # frames of a library that are shown below the user's, the last of them


@dataclass(frozen=True, slots=True, repr=False)
class Stacks(Shown):
    """The stacks of all ranks as one tree, as ``stacks()`` returns it; it shows itself as text and in a notebook.

    ``branches``: each has the ``ranks`` that are in its ``frame`` (``file``, ``line``, ``function``), and ``calls``, the
    branches below it: most ranks first. ``culprits`` and ``sides``: the ranks that the findings blame.

    Example:
        >>> ddpnb.stacks(recording).branches[0].ranks
        (0, 1, 2, 3)
    """

    branches: tuple[Branch, ...]
    culprits: frozenset[int] = frozenset()
    sides: tuple[tuple[int, ...], ...] = ()
    _label: ClassVar[str] = "stacks of all ranks"

    def _document(self) -> list[Block]:
        return document(self.branches, self.culprits, self.sides)


def stacks(recording: Recording) -> Stacks:
    """The stacks of all ranks merged into one tree, from your code inwards: where ranks differ, its branches name them.

    Args:
        recording: from ``World.snapshot()``, ``Run.recording`` or ``ddpnb.load()``.

    Returns:
        The tree; empty if no rank is in a run, or none was asked for its stack. Ranks that a finding blames are marked.

    Raises:
        UsageError: it is not a Recording.

    Example:
        >>> ddpnb.stacks(ddpnb.load("hang.ddpnb"))
        [ranks 0-3] main  train.py:30
          [ranks 0, 2 and 3] train  train.py:21
          [culprit: rank 1] evaluate  train.py:12
    """
    if not isinstance(recording, Recording):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError("stacks() takes a Recording.", "world.stacks() is for live ranks.")
    return _merged(recording, diagnose(recording))


def of(recording: Recording, diagnosis: Diagnosis | None) -> list[Block]:
    """The tree of a recording, with the ranks that its diagnosis blames."""
    found = _merged(recording, diagnosis)
    return document(found.branches, found.culprits, found.sides)


def _merged(recording: Recording, diagnosis: Diagnosis | None) -> Stacks:
    errors = diagnosis.errors if diagnosis is not None else ()
    culprits = frozenset(rank for finding in errors for rank in finding.culprits)
    sides = tuple(tuple(side) for finding in errors if not finding.culprits for side in finding.sides)
    return Stacks(merge(recording), culprits, sides)


def document(
    tree: Sequence[Branch],
    culprits: Collection[int] = (),
    sides: Collection[Collection[int]] = (),
    *,
    whole: bool = False,
) -> list[Block]:
    """The tree as nested lists.

    Args:
        tree: from ``views.merged_stacks``.
        culprits: ranks that a finding blames.
        sides: groups of ranks of which one is at fault; no recorded fact tells which.
        whole: with all frames of libraries.
    """
    if not tree:
        return [Paragraph("No stacks: no rank is in a run, or no stacks were requested.", kind="faint")]
    branches = [_branch(branch, None, culprits, sides, whole=whole) for branch in tree]
    return [Items(branches, marked=False, kind="tree mono")]


def _branch(
    branch: Branch,
    above: tuple[int, ...] | None,
    culprits: Collection[int],
    sides: Collection[Collection[int]],
    *,
    whole: bool,
    depth: int = 0,
) -> list[Block]:
    chain = [branch]
    while len(chain[-1].calls) == 1 and chain[-1].calls[0].ranks == branch.ranks:
        chain.append(chain[-1].calls[0])
    shown, (after, left) = (chain, (0, 0)) if whole else _of_interest(chain)
    lines: list[tuple[Inline, ...]] = [_frame(one.frame) for one in shown]
    if left:
        lines.insert(after + 1, (Span(f"… {left} library frames", "faint"),))
    if branch.ranks != above:
        lines[0] = (_who(branch.ranks, culprits, sides), *lines[0])
    depth += len(lines)
    below = [_branch(child, branch.ranks, culprits, sides, whole=whole, depth=depth) for child in chain[-1].calls]
    return _nested(lines, [Items(below, marked=False)] if below else [], depth - len(lines))


def _nested(lines: Sequence[tuple[Inline, ...]], below: list[Block], depth: int) -> list[Block]:
    """Each frame below the one that called it; from some depth on below one another."""
    first, *rest = lines
    if not rest:
        return [Paragraph(*first), *below]
    deep = depth + 1 >= _DEEP
    inner: list[list[Block]] = [[Paragraph(*line)] for line in rest[:-1]] if deep else []
    inner.append(_nested(rest[-1:] if deep else rest, below, depth + 1))
    return [Paragraph(*first), Items(inner, marked=False, kind="frame")]


def _who(ranks: tuple[int, ...], culprits: Collection[int], sides: Collection[Collection[int]]) -> Drawn:
    kind, image, word = "", "", ""
    if set(ranks) <= set(culprits):
        kind, image, word = " bad", markup.icon("stop"), "culprit: "
    elif any(set(ranks) <= set(side) for side in sides):
        kind, image, word = " undecided", markup.icon("why"), "one side: "
    named = f"{word}{phrases.ranks(ranks)}"
    return Drawn(f'<span class="who{kind}">{image}{" " * bool(word)}{named}</span>', f"[{named}] ")


def _frame(frame: Frame) -> tuple[Inline, ...]:
    function = frame.function[:_FUNCTION]
    if not frame.user:
        return (Span(f"{function}  {_short(frame)}", "faint"),)
    return f"{function}  ", Place(frame.site, f"{relative(frame.file)[-_LONGEST:]}:{frame.line}")


def _of_interest(chain: list[Branch]) -> tuple[list[Branch], tuple[int, int]]:
    """The frames to show, and after which of them how many library frames are left out."""
    user = max((number for number, branch in enumerate(chain) if branch.frame.user), default=-1)
    tail = chain[user + 1 :]
    if len(tail) <= _LIBRARY + 1:
        return chain, (0, 0)
    return [*chain[: user + 1], *tail[-_LIBRARY:]], (user, len(tail) - _LIBRARY)


def _short(frame: Frame) -> str:
    return f"{'/'.join(frame.file[-_LONGEST:].split('/')[-2:])}:{frame.line}"


def frames(stack: Stack, rank: int, chosen: int) -> str:
    """The frames of a rank, the innermost first: the user's as buttons (the action ``frame``), those between them in a line.

    Args:
        stack: of its main thread.
        rank: which one.
        chosen: which of the user's frames is shown, from 0 for the innermost.
    """
    rows: list[str] = []
    library: list[Frame] = []
    number = 0
    for frame in reversed(stack.frames):
        if not frame.user:
            library.append(frame)
            continue
        rows += _between(library)
        library = []
        rows.append(f"<li>{_chooser(frame, rank, number, chosen=number == chosen)}</li>")
        number += 1
    rows += _between(library)
    label = markup.attributes({"class": "frames mono", "aria-label": f"call stack of rank {rank}", "data-walk": "1"})
    return f"<ul{label}>{''.join(rows)}</ul>"


def _chooser(frame: Frame, rank: int, number: int, *, chosen: bool) -> str:
    given = {"type": "button", "class": "plain", "data-action": "frame", "data-rank": rank, "data-number": number}
    stops = {"data-stop": "1", "tabindex": "0" if chosen else "-1", "aria-current": "true" if chosen else None}
    where = f"{markup.short(relative(frame.file))[-_LONGEST:]}:{frame.line}"
    title = f"{frame.file[-_PATH:]}:{frame.line}"
    return (
        f"<button{markup.attributes({**given, **stops, 'title': title})}>{markup.text(frame.function, _FUNCTION)} "
        f'<span class="faint">{markup.text(where, _LONGEST)}</span></button>'
    )


def _between(library: Sequence[Frame]) -> list[str]:
    """Frames of libraries that follow one another: the innermost, and how many more; without those in which ddpnb holds a rank."""
    ours = max((number for number, frame in enumerate(library) if frame.own), default=-1)
    library = library[ours + 1 :]
    if not library:
        return []
    more = f" and {len(library) - 1} more" if len(library) > 1 else ""
    words = f"{markup.text(library[0].function, _FUNCTION)} {markup.text(_short(library[0]), _LONGEST)}{more}"
    return [f'<li class="faint" title="{markup.text(library[0].file, _PATH)}">{words}</li>']
