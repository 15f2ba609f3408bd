"""The rank board: a tile per rank."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from ddpnb.recording import checkpoints, phrases
from ddpnb.recording.calls import NO_SITE, Call, CallState, runs
from ddpnb.recording.events.runs import Checkpoint
from ddpnb.recording.rank_state import RankState
from ddpnb.recording.recording import Recording
from ddpnb.render import as_html, as_text, markup
from ddpnb.render.document import Block, Cell, Drawn, Heading, Icon, Inline, Paragraph, Place, Span, Table
from ddpnb.render.rank_states import DEAD, FAILED, LOOKS, Look
from ddpnb.render.views.board import Tile
from ddpnb.texts import printable, relative

_MANY = 16  # tiles from which on they are small
_PATH = 50  # characters of a path
_NAME = 40  # characters of a file's name
_MOST_SPANS = 4096  # of the ranks of a tile, that a filter knows
_ROWS = 64  # of a table
_NAMES = 200  # characters of a list of ranks
_LISTED = 16  # states in a sentence
_CALLS = 8  # the last ones of a rank


def board(tiles: Sequence[Tile], host: Mapping[str, object] | None = None, chosen: int | None = None) -> str:
    """All tiles.

    Args:
        tiles: from ``views.board``.
        host: facts of the machine: ``memory_total`` (bytes) and ``cores``.
        chosen: the selected rank.
    """
    if not tiles:
        return '<p class="faint">No ranks.</p>'
    kind = "tiles many" if len(tiles) > _MANY else "tiles"
    shown = "".join(_tile(one, host or {}, chosen, first=n == 0) for n, one in enumerate(tiles))
    filters = _filters(tiles) if len(tiles) > _MANY else ""
    return f'{filters}<div class="{kind}" role="group" aria-label="ranks" data-walk="1">{shown}</div>'


def _filters(tiles: Sequence[Tile]) -> str:
    """Which tiles are shown: the page itself hides the others (notebook/widgets/static/filter.js)."""
    counts: dict[str, int] = {}
    for one in tiles:
        counts[look_of(one).words] = counts.get(look_of(one).words, 0) + len(one.ranks)
    named = sum(len(one.ranks) for one in tiles if one.finding or one.undecided)
    entries = [("", "all"), *([("named", f"named by a finding ({named})")] if named else [])]
    entries += [(words, f"{words} ({count})") for words, count in sorted(counts.items())]
    options = "".join(
        f"<option{markup.attributes({'value': v, 'data-key': v or 'all'})}>{w}</option>" for v, w in entries
    )
    return (
        '<div class="row" role="search" aria-label="filter of the ranks" data-filters="1">'
        '<label>show<input type="text" aria-label="ranks or words" data-filter="text" data-does="filter the ranks" '
        'aria-keyshortcuts="/" placeholder="0-7, 12 or all_reduce" size="22"></label>'
        f'<label>state<select aria-label="state" data-filter="state">{options}</select></label>'
        '<span class="faint" role="status" data-filtered="1"></span></div>'
    )


def _tile(one: Tile, host: Mapping[str, object], chosen: int | None, *, first: bool) -> str:
    words, image, role = look_of(one)
    if one.undecided:
        role = "warning"
    if one.last:
        role = "faint" if one.well else "warning"
    elif one.finding:
        image, role = "stop" if image in ("wait", "done", "compute") else image, "error"
    name = phrases.ranks(one.ranks)
    many = len(one.ranks) > 1
    where = markup.place(one.site, f"{os.path.basename(relative(one.site.file))[-_NAME:]}:{one.site.line}", stop=False)
    step = f"step {one.steps}" if one.steps else ""
    place = "".join(f"<span>{part}</span>" for part in (where, step) if part)
    aside = " · ".join(
        part
        for part in (
            one.coordinate,
            one.device,
            f"pid {one.pid}" if one.pid and not many else "",
            f"{len(one.ranks)} ranks" if many else "",
        )
        if part
    )
    doing = markup.text(_doing(one), 200)
    passed = markup.text(_passed(one), 80)
    code = f" · {markup.text(_named(one))}" if _named(one) else ""
    told = attributes_of(one, name, chosen, first=first)
    return (
        f"<div{_box(one)}><button{told}>"
        f'<span class="top"><span>{markup.text(name)}</span><span class="faint">{markup.text(aside)}</span></span>'
        f'<span class="state {role}">{markup.icon(image)} {words}{code}</span>'
        f'<span class="line words" title="{markup.text(_doing(one, full=True), 300)}">{doing}</span>'
        f'<span class="line words" title="{markup.text(_for_whom(one), 300)}">{_waits(one)}</span>'
        + (f'<span class="line faint" title="{markup.text(_passed(one), 300)}">{passed}</span>' if passed else "")
        + f'</button><div class="line place mono faint">{place}</div>{_meters(one, host)}</div>'
    )


def _box(one: Tile) -> str:
    spans = [str(first) if first == last else f"{first}-{last}" for first, last in runs(one.ranks)]
    ranks = ",".join(spans[:_MOST_SPANS])
    named = "1" if one.finding or one.undecided else None
    return markup.attributes(
        {
            "class": "tile",
            "data-key": f"rank{one.ranks[0]}",
            "data-ranks": ranks,
            "data-state": look_of(one).words,
            "data-named": named,
        }
    )


def _doing(one: Tile, *, full: bool = False) -> str:
    """What the rank is doing, or how the last run ended on it."""
    if one.last:
        return f"last run: {one.last}"
    return one.doing if full else one.call or one.doing


def _waits(one: Tile) -> str:
    """For whom the rank waits, and for how long it is there."""
    age = f"{'· ' * bool(one.missing)}{markup.age(one.since_s)}" if one.since_s is not None else ""
    return " ".join(part for part in (markup.text(_for_whom(one), 60), age) if part)


def _for_whom(one: Tile) -> str:
    return f"waits for {phrases.ranks(one.missing)}" if one.missing else ""


def _passed(one: Tile) -> str:
    """The numbered checkpoint that the rank passed last."""
    if one.checkpoint is None:
        return ""
    return f"{checkpoints.with_line(one.checkpoint)}{' or a later one' if one.further else ''}"


def _named(one: Tile) -> str:
    """The finding that names the rank, and how."""
    return one.finding or (f"{one.undecided}: one of the sides" if one.undecided else "")


def look_of(one: Tile) -> Look:
    if one.dead:
        return DEAD
    return FAILED if one.state is RankState.ENDED and not one.well else LOOKS[one.state]


def _end(path: str) -> str:
    """The end of a long path."""
    return path if len(path) <= _PATH else f"…{path[-_PATH:]}"


def attributes_of(one: Tile, name: str, chosen: int | None, *, first: bool) -> str:
    return markup.attributes(
        {
            "type": "button",
            "class": "face",
            "data-action": "rank",
            "data-rank": one.ranks[0],
            "data-stop": "1",
            "data-bad": True if one.finding and not one.last else None,
            "data-undecided": True if one.undecided else None,
            "tabindex": "0" if first else "-1",
            "aria-pressed": "true" if chosen in one.ranks else "false",
            "aria-label": f"{name}: {look_of(one).words} {_doing(one, full=True)[:300]}"
            + "".join(f", {more}" for more in (_for_whom(one), _passed(one), _named(one)) if more),
        }
    )


def _meters(one: Tile, host: Mapping[str, object]) -> str:
    if len(one.ranks) > 1:
        return ""
    process, parts = one.process, list[str]()
    total, cores = host.get("memory_total"), host.get("cores")
    if process.memory:
        share = process.memory / total if isinstance(total, int) and total else 0.0
        parts.append(_meter("process memory", markup.amount(process.memory), share))
    if process.cores is not None:
        share = process.cores / cores if isinstance(cores, (int, float)) and cores else process.cores
        parts.append(_meter("busy", f"{process.cores:.1f} cores", share))
    if process.device_total:
        parts.append(
            _meter(
                "GPU memory, all processes",
                f"GPU {markup.amount(process.device_memory)}",
                process.device_memory / process.device_total,
            )
        )
    if process.device_busy is not None:
        parts.append(_meter("GPU utilisation", f"GPU {process.device_busy:.0%}", process.device_busy))
    return f'<span class="meters faint">{"".join(parts)}</span>' if parts else ""


def _meter(name: str, value: str, share: float) -> str:
    width = round(100 * min(1.0, max(0.0, share)))
    return f'<span title="{name}"><span class="unseen">{name}: </span>{value}<span class="meter"><i style="width:{width}%"></i></span></span>'


def detail(recording: Recording, rank: int | None) -> str:
    """Details of one rank: its last calls, newest first, and its last events."""
    record = recording.ranks.get(rank) if rank is not None else None
    if record is None:
        return ""
    rows = [
        (
            one.title[:80],
            str(one.group)[:80],
            str(one.signature),
            one.state.name.lower(),
            Cell((Drawn(_took(one, recording.taken_ns)),), role="wide"),
            Cell((Place(one.site), f" {one.site.function[:40]}")),
        )
        for one in reversed(record.calls[-_CALLS:])
    ]
    head = ("call", "group", "signature", "state", "took", "line")
    calls: Block = Table(f"last calls of rank {rank}", head, rows, widest=120)
    calls = calls if rows else Paragraph("no collective recorded", kind="faint")
    others = [event for event in record.history if not isinstance(event, Checkpoint)]
    events = ", ".join(f"{event.title} ({event.state})" for event in others[-6:])
    passed = "; ".join(map(checkpoints.with_line, checkpoints.passed(record)[-6:]))
    said = [Paragraph(words[:600], kind="faint") for words in (events, passed) if words]
    return as_html.html(Heading(f"Rank {rank}: its last calls"), calls, *said)


def _took(one: Call, now_ns: int) -> str:
    """How long a call took, or for how long the rank is in it."""
    if one.done_ns > one.entered_ns > 0:
        return markup.duration((one.done_ns - one.entered_ns) * 1e-9)
    since = one.state.in_flight or one.state is CallState.HELD
    return f"for {markup.age((now_ns - one.entered_ns) * 1e-9)}" if since and now_ns > one.entered_ns > 0 else ""


def table(tiles: Sequence[Tile]) -> list[Block]:
    """The board as a table; of mesh and checkpoints there are columns only if they are known."""
    if not tiles:
        return [Paragraph("no ranks.")]
    head = ["ranks", "mesh", "state", "doing", "since", "step", "where", "passed last", "finding"]
    rows: list[list[Inline | Cell]] = []
    for one in tiles[:_ROWS]:
        look = look_of(one)
        role = "error" if one.finding else "warning" if one.undecided else look.role
        cells = [
            phrases.ranks(one.ranks).partition(" ")[2][:_NAMES],
            one.coordinate,
            "",
            _doing(one, full=True)[:60],
            markup.span(one.since_s) if one.since_s is not None else "",
            str(one.steps or ""),
            f"{_end(relative(one.site.file))}:{one.site.line}" if one.site != NO_SITE else "",
            _passed(one)[:60],
            _named(one),
        ]
        row: list[Inline | Cell] = [" ".join(cell.split()) for cell in cells]
        missing = f", {_for_whom(one).removeprefix('waits ')}" if one.missing else ""  # text has no room for it
        row[3] = Cell((Drawn(markup.text(f"{_doing(one, full=True)}{missing}", 200), cells[3]),))
        row[2] = Cell((Icon(look.icon), Span(look.words, strong=True)), role=f"wide {role}")
        rows.append(row)
    unknown = {
        "mesh": not any(one.coordinate for one in tiles),
        "passed last": not any(one.checkpoint for one in tiles),
    }
    kept = [number for number, name in enumerate(head) if not unknown.get(name)]
    shown = Table("ranks", [head[n] for n in kept], [[row[n] for n in kept] for row in rows], "mono left")
    return [shown, *([Paragraph(f"And {len(tiles) - _ROWS} more.", kind="faint")] if len(tiles) > _ROWS else [])]


def text(tiles: Sequence[Tile]) -> str:
    """The same for a terminal."""
    return as_text.text(*table(tiles))


def headline(tiles: Sequence[Tile]) -> str:
    """The board in a sentence: ``ranks 0, 2 and 3 waiting in all_reduce #57 of default_pg; rank 1 ended``."""
    alike: dict[str, list[int]] = {}
    for tile in tiles:
        link = _LINKS.get(tile.state, "") if tile.doing else ""
        alike.setdefault(f"{LOOKS[tile.state].words}{f' {link} {tile.doing}' if link else ''}", []).extend(tile.ranks)
    states = list(alike.items())
    rest = sum(len(ranks) for _, ranks in states[_LISTED:])
    more = f"; {rest} more ranks in {len(states) - _LISTED} other states" if rest else ""
    return printable("; ".join(f"{phrases.ranks(ranks)} {what}" for what, ranks in states[:_LISTED]) + more)


# How the call or phase of a rank follows its state.
_LINKS = {RankState.WAITING: "in", RankState.STARTING: "in", RankState.CREATING_GROUP: "in", RankState.HELD: "before"}
