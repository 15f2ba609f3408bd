"""The merged stacks: a tree whose branches are labelled with ranks; and the frames of one rank, to choose from."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from ddpnb.recording import phrases
from ddpnb.recording.findings import Diagnosis
from ddpnb.recording.recording import Recording
from ddpnb.recording.stacks import Frame, Stack
from ddpnb.render import markup
from ddpnb.render.views.merged_stacks import Branch, merge
from ddpnb.texts import printable, relative

_LONGEST = 200  # characters of a file's name
_PATH = 1000  # and of a path
_HOLDS = re.compile(r"/ddpnb/recorder/(?!faults/|inject/)[\w/]+\.py$")
_LIBRARY = 3  # frames of a library that are shown below the user's, the last of them


def of(recording: Recording, diagnosis: Diagnosis | None) -> str:
    """The tree of a recording, with the ranks that its diagnosis blames."""
    errors = diagnosis.errors if diagnosis is not None else ()
    culprits = {rank for finding in errors for rank in finding.culprits}
    sides = [side for finding in errors if not finding.culprits for side in finding.sides]
    return stacks(merge(recording), culprits, sides)


def stacks(tree: Sequence[Branch], culprits: Collection[int] = (), sides: Collection[Collection[int]] = ()) -> str:
    """The tree as nested lists.

    Args:
        tree: from ``views.merged_stacks``.
        culprits: ranks that a finding blames.
        sides: groups of ranks of which one is at fault; no recorded fact tells which.
    """
    if not tree:
        return '<p class="faint">No stacks: no rank is in a run, or no stacks were requested.</p>'
    return f'<ul class="tree mono">{"".join(_branch(branch, None, culprits, sides) for branch in tree)}</ul>'


def _branch(
    branch: Branch, above: tuple[int, ...] | None, culprits: Collection[int], sides: Collection[Collection[int]]
) -> str:
    """Frames that follow one another without a fork stay in one list."""
    lines: list[str] = []
    chain = [branch]
    while len(chain[-1].calls) == 1 and chain[-1].calls[0].ranks == branch.ranks:
        chain.append(chain[-1].calls[0])
    shown, left = _of_interest(chain)
    kind, word = "", ""
    if set(branch.ranks) <= set(culprits):
        kind, word = " bad", f"{markup.icon('stop')} culprit: "
    elif any(set(branch.ranks) <= set(side) for side in sides):
        kind, word = " undecided", f"{markup.icon('why')} one side: "
    who = f'<span class="who{kind}">{word}{phrases.ranks(branch.ranks)}</span>' if branch.ranks != above else ""
    if left[0] < 0:
        lines.append(f'<div class="faint">{who}… {left[1]} library frames</div>')
        who = ""
    for number, frame in enumerate(shown):
        site = (
            markup.place(frame.frame.site) if frame.frame.user else f"<code>{markup.text(_short(frame.frame))}</code>"
        )
        shade = "" if frame.frame.user else ' class="faint"'
        lines.append(
            f"<div>{who if not number else ''}<span{shade}>{markup.text(frame.frame.function, 80)} {site}</span></div>"
        )
        if number == left[0] and left[1]:
            lines.append(f'<div class="faint">… {left[1]} library frames</div>')
    below = "".join(_branch(child, branch.ranks, culprits, sides) for child in chain[-1].calls)
    return f"<li>{''.join(lines)}{f'<ul>{below}</ul>' if below else ''}</li>"


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
        f"<button{markup.attributes({**given, **stops, 'title': title})}>{markup.text(frame.function, 80)} "
        f'<span class="faint">{markup.text(where, _LONGEST)}</span></button>'
    )


def _between(library: Sequence[Frame]) -> list[str]:
    """Frames of libraries that follow one another: the innermost, and how many more; without those in which ddpnb holds a rank."""
    ours = max((number for number, frame in enumerate(library) if _HOLDS.search(frame.file)), default=-1)
    library = library[ours + 1 :]
    if not library:
        return []
    more = f" and {len(library) - 1} more" if len(library) > 1 else ""
    words = f"{markup.text(library[0].function, 80)} {markup.text(_short(library[0]), _LONGEST)}{more}"
    return [f'<li class="faint" title="{markup.text(library[0].file, _PATH)}">{words}</li>']


def text(tree: Sequence[Branch]) -> str:
    """The tree for a terminal."""
    lines: list[str] = []

    def walk(branches: Sequence[Branch], depth: int, above: tuple[int, ...] | None) -> None:
        for branch in branches:
            who = f"[{phrases.ranks(branch.ranks)}] " if branch.ranks != above else ""
            frame = branch.frame
            where = f"{relative(frame.file)[-_LONGEST:]}:{frame.line}" if frame.user else _short(frame)
            lines.append(f"{'  ' * depth}{who}{frame.function[:80]}  {where}")
            walk(branch.calls, depth + 1 if len(branch.calls) > 1 or branch.ranks != above else depth, branch.ranks)

    walk(tree, 0, None)
    return printable("\n".join(lines)) if lines else "no stacks."
