"""The panel of a rank: its call stack, the source around its line, variables, watched expressions and last calls.

Two ranks can stand side by side. ``notebook/widgets/rank_panel.py`` keeps what is chosen.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ddpnb.recording import phrases
from ddpnb.recording.calls import CallState, Site
from ddpnb.recording.events.runs import Held
from ddpnb.recording.rank_state import RankState
from ddpnb.recording.recording import Recording
from ddpnb.recording.stacks import Stack
from ddpnb.render import answers, as_html, board, markup, stacks, variables
from ddpnb.render.answers import Answer
from ddpnb.render.margin import Mark, listing
from ddpnb.render.variables import Inside
from ddpnb.render.views.board import Tile
from ddpnb.render.views.frame_variables import SideBySide

_MOST = 256  # ranks to choose from
_WHERE = 300  # characters
_AT = re.compile(r"^at \S+ ?")

# action, label, icon, key, what it does
_STEPS = (
    ("rank resume", "resume", "go", "F5", "let it continue until a hold matches again"),
    ("rank over", "over", "over", "F10", "step to the next line of this function"),
    ("rank into", "into", "into", "F11", "step into the function that this line calls"),
    ("rank out", "out", "out", "Shift+F11", "step until this function has returned"),
    ("rank call", "next collective", "step", "", "continue until the next collective"),
)


@dataclass(frozen=True, slots=True)
class Column:
    """One rank. ``frame``: which of its user frames is chosen, from 0 for the innermost; ``text``: of that frame's file."""

    rank: int
    tile: Tile | None
    stack: Stack | None
    frame: int = 0
    text: str = ""

    @property
    def site(self) -> Site | None:
        frames = self.stack.user_frames if self.stack is not None else ()
        return frames[-1 - min(self.frame, len(frames) - 1)].site if frames else None

    @property
    def held(self) -> bool:
        return self.tile is not None and self.tile.state is RankState.HELD


@dataclass(frozen=True, slots=True)
class Controls:
    """What can be done to live ranks. ``acts_on``: "rank", "shown" or "all"; ``busy``: a step is in progress.

    ``marks``: the holds, by file and line; ``names``: of tensors, to watch; ``moved``: the ranks have moved since they
    were read.
    """

    alive: bool = True
    acts_on: str = "rank"
    busy: bool = False
    moved: bool = False
    held: bool = False
    marks: Mapping[tuple[str, int], Mark] = field(default_factory=dict[tuple[str, int], Mark])
    names: Sequence[str] = ()
    answer: Answer = field(default_factory=Answer)


@dataclass(frozen=True, slots=True)
class Panel:
    """What is shown. ``controls``: None without live ranks; ``watched``: the values of the watched expressions."""

    columns: tuple[Column, ...]  # one or two
    ranks: tuple[int, ...]  # all that can be chosen
    lines: Mapping[tuple[str, int], Sequence[int]]  # where the ranks stand
    now: Recording  # their last calls
    frames: SideBySide | None = None
    inside: Mapping[str, Inside] = field(default_factory=dict[str, Inside])
    differing: bool = False
    watched: SideBySide | None = None
    controls: Controls | None = None
    edited: tuple[str, int] = ("", 0)  # the line of whose hold the conditions are shown

    @property
    def edited_on(self) -> int:
        """The rank in whose source they are shown: the first that is in this file."""
        ranks = (
            column.rank for column in self.columns if column.site is not None and column.site.file == self.edited[0]
        )
        return next(ranks, -1)

    @property
    def shown(self) -> tuple[int, ...]:
        return tuple(column.rank for column in self.columns)


def html(panel: Panel) -> str:
    """All of it; one element, within which the keys act."""
    kind = "debugger two" if len(panel.columns) > 1 else "debugger"
    given = markup.attributes({"class": kind, "data-keys": "1", "tabindex": "-1"})
    columns = "".join(_column(panel, column) for column in panel.columns)
    parts = (_head(panel), _tools(panel), f'<div class="columns">{columns}</div>', _variables(panel), _watched(panel))
    calls = "".join(board.detail(panel.now, rank) for rank in panel.shown)
    return f"<div{given}>{''.join(parts)}{calls}</div>"


def text(panel: Panel) -> str:
    """Where the ranks stand, and which variables differ."""
    lines = [f"rank {column.rank}: {_state(column)}{_at(column)}" for column in panel.columns]
    watched = [f"{row.name}: {_values(row.values)}" for row in panel.watched.rows] if panel.watched is not None else []
    return "\n".join([*lines, variables.summary(panel.frames), *watched])


def _values(values: Mapping[int, str]) -> str:
    return ", ".join(f"rank {rank} {value}" for rank, value in values.items())


def _state(column: Column) -> str:
    return board.look_of(column.tile).words if column.tile is not None else "not known"


def _at(column: Column) -> str:
    return f" at {column.site} in {column.site.function}" if column.site is not None else ""


# -- the head


def _head(panel: Panel) -> str:
    """Which ranks are shown, and which one could stand beside."""
    first = panel.shown[0]
    others = [("", "none"), *((str(rank), f"rank {rank}") for rank in panel.ranks[:_MOST] if rank != first)]
    beside = str(panel.shown[1]) if len(panel.shown) > 1 else ""
    choice = markup.choice("beside it", "beside", others, beside, change="rank beside") if len(others) > 1 else ""
    close = markup.button("close", "rank close", image="gone", title="close the panel of this rank")
    return (
        f'<form class="row title"><h2>{phrases.ranks(panel.shown, True)}</h2><span class="space"></span>'
        f"{choice}{close}</form>"
    )


def _tools(panel: Panel) -> str:
    """The buttons, which never move, and the answer of the last one."""
    controls = panel.controls
    if controls is None:
        return ""
    why_not = _why_not(panel, controls)
    buttons = "".join(_step(*step, why_not) for step in _STEPS)
    hold = markup.button(
        "hold", "rank hold", image="hold", enabled=controls.alive, title="stop before the next collective"
    )
    look = markup.button(
        "look again", "rank look", image="why", enabled=controls.alive, title="read the stacks and variables now"
    )
    return (
        f'<form class="row tools">{buttons}{hold}{look}{_whom(panel, controls)}'
        f"{answers.html(_answer(panel, controls))}</form>"
    )


def _why_not(panel: Panel, controls: Controls) -> str:
    """Why no step can be made now; empty: one can."""
    if not controls.alive:
        return "these ranks are no longer followed"
    if controls.held or controls.busy:
        return ""
    whom = acts_on(panel, controls.acts_on)
    return (
        f"{'no rank is held' if controls.acts_on == 'all' else f'not held: {whom}'}; hold stops at the next collective"
    )


def _step(action: str, label: str, image: str, key: str, does: str, why_not: str) -> str:
    """A button that keeps the focus while it cannot be pressed: the keys of a debugger must not reach the browser."""
    title = f"{does} ({key})" if key else does
    given = {"type": "button", "data-action": action, "title": f"{title}. Not now: {why_not}." if why_not else title}
    given |= {"aria-keyshortcuts": key, "data-does": f"rank panel: {does}"} if key else {}
    off = {"aria-disabled": "true"} if why_not else {}
    return f"<button{markup.attributes({**given, **off})}>{markup.icon(image)}{markup.text(label)}</button>"


def _whom(panel: Panel, controls: Controls) -> str:
    pair = [("shown", phrases.ranks(panel.shown))] if len(panel.shown) > 1 else []
    options = [("rank", f"rank {panel.columns[0].rank}"), *pair, ("all", "all ranks")]
    return markup.choice("buttons and holds act on", "whom", options, controls.acts_on, change="rank whom")


def _answer(panel: Panel, controls: Controls) -> Answer:
    """The last answer; without one, whether what is shown is of an earlier moment."""
    if controls.moved and not (controls.answer.busy or controls.answer.said):
        runs = phrases.verb(panel.shown, "has moved", "have moved")
        return Answer(said=f"{phrases.ranks(panel.shown, True)} {runs} since: this is where it was.")
    return controls.answer


def acts_on(panel: Panel, whom: str) -> str:
    """In words."""
    return {"all": "all ranks", "shown": phrases.ranks(panel.shown)}.get(whom, f"rank {panel.shown[0]}")


# -- a rank


def _column(panel: Panel, column: Column) -> str:
    given = {"class": "column", "data-key": f"rank{column.rank}", "role": "group", "aria-label": f"rank {column.rank}"}
    why = markup.attributes({"class": "where", "title": _why(panel, column) or None})
    where = f"<div{why}>{_standing(column, _why(panel, column), named=len(panel.columns) > 1)}</div>"
    if column.stack is None or column.site is None:
        nothing = '<p class="faint">It is not in a function of yours, or its stack was not read.</p>'
        return f"<div{markup.attributes({**given})}>{where}{nothing}</div>"
    frames = stacks.frames(column.stack, column.rank, column.frame)
    return f'<div{markup.attributes({**given})}>{where}<div class="stands">{frames}{_source(panel, column)}</div></div>'


def _why(panel: Panel, column: Column) -> str:
    """Why a hold has stopped the rank, where there is more to say than its place: at a line, or by a value that differs."""
    record = panel.now.ranks.get(column.rank)
    if record is None or not column.held:
        return ""
    if at_line := record.events(Held, state="open"):
        return at_line[-1].why
    call = next((one for one in reversed(record.calls) if one.state is CallState.HELD), None)
    said = (one.why for one in reversed(record.events(Held)) if call is not None and one.call == call.number)
    return f"before {call.title}: {why}" if call is not None and (why := next(said, "")) else ""


def _standing(column: Column, why: str, *, named: bool) -> str:
    """What the rank does, in a line. ``why``: a hold has stopped it; ``named``: say which rank this is."""
    tile = column.tile
    name = f"<b>rank {column.rank}</b> " if named else ""
    if tile is None:
        return name
    look = board.look_of(tile)
    waits = f", waits for {phrases.ranks(tile.missing)}" if tile.missing else ""
    place = f" at {markup.place(column.site)}" if column.site is not None else ""
    if why and not why.startswith("before "):  # at a line, whose hold names it too
        said = _AT.sub("", why)
        doing = f"{place}{':' if said else ''} {markup.text(said, _WHERE)}"
    else:
        does = why or tile.doing
        doing = f" {markup.text(does, _WHERE)}{markup.text(waits)}{place}" if does else place
    return f'{name}<span class="{look.role}">{markup.icon(look.icon)} {look.words}</span>{doing}'


def _source(panel: Panel, column: Column) -> str:
    site = column.site
    if site is None:
        return ""
    lines = sorted((line, ranks) for (file, line), ranks in panel.lines.items() if file == site.file)
    at = tuple((line, phrases.ranks(ranks).partition(" ")[2]) for line, ranks in lines)
    controls = panel.controls
    marks = controls.marks if controls is not None else {}
    here = tuple(
        (line, mark) for (file, line), mark in sorted(marks.items(), key=lambda one: one[0]) if file == site.file
    )
    whom = acts_on(panel, controls.acts_on) if controls is not None and controls.alive else ""
    edited = panel.edited[1] if panel.edited[0] == site.file and column.rank == panel.edited_on else 0
    return listing(site, column.text, column.rank, at, here, whom, edited)


# -- values


def _variables(panel: Panel) -> str:
    if panel.frames is None:
        return ""
    opens = panel.controls is not None and panel.controls.alive
    shown = variables.document(panel.frames, panel.inside, opens=opens, first=panel.shown, differing=panel.differing)
    only = {"type": "checkbox", "name": "differing", "value": "1", "checked": panel.differing}
    only |= {"data-change": "rank differing"}
    search = {"type": "text", "aria-label": "search variables", "placeholder": "name or value", "size": "22"}
    form = (
        f'<form class="row title"><h2>Variables</h2><input{markup.attributes({**search, "data-search": "1"})}>'
        f'<label class="beside"><input{markup.attributes({**only})}>only what differs between ranks</label></form>'
    )
    return f'{form}<div data-searched="1">{as_html.html(*shown)}</div>'


def _watched(panel: Panel) -> str:
    controls = panel.controls
    if controls is None:
        return ""
    form = markup.form(
        "watch",
        "<h2>Watch</h2>",
        markup.offered("expression", "expression", controls.names, hint="loss.item() or a tensor", size=28),
        markup.button("watch", "watch", image="why", enabled=controls.alive),
    )
    values = panel.watched
    table = (
        variables.watched(values, panel.inside, first=panel.shown, opens=controls.alive) if values is not None else []
    )
    return f'<div class="watched">{form}{as_html.html(*table)}</div>'
