"""The panel of a rank, of live ranks: when it is read again, and what its buttons do."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from ddpnb.errors import UsageError
from ddpnb.notebook import asked
from ddpnb.notebook.live import Picture
from ddpnb.notebook.part import Context, Part
from ddpnb.notebook.parts.rank_values import RankValues
from ddpnb.notebook.widgets.rank_panel import RankPanel
from ddpnb.recording.events.runs import Held
from ddpnb.recording.findings import Diagnosis
from ddpnb.recording.holds import Hold
from ddpnb.recording.rank_state import RankState
from ddpnb.recording.recording import Recording
from ddpnb.render.controls import Head
from ddpnb.render.margin import Mark
from ddpnb.render.rank_panel import Controls
from ddpnb.render.views import board as boards
from ddpnb.render.views.board import Tile

_STANDS = (RankState.HELD, RankState.WAITING, RankState.BLOCKED)
_EMPTY_S, _EMPTY_AT_MOST_S = 0.5, 4.0  # between two questions to a rank that is not in the user's code yet
_GONE = (RankState.ENDED, RankState.UNRESPONSIVE)
_STEPS = {"rank over": "over", "rank into": "into", "rank out": "out", "rank call": "collective"}


class RankDebugger(Part[RankPanel]):
    name = "rank"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.widget = RankPanel(on_action=self.take, controls=self._controls)
        self.values = RankValues(context, self.widget)
        self._read_at: object = None  # where the ranks stood when they were read
        self._again_at, self._pause = 0.0, _EMPTY_S  # when a panel without frames is read again
        self._closed = False  # somebody has closed the panel in this run
        self._by_itself = False  # it has opened without anybody asking for this rank

    # -- what is shown

    def _opened(self) -> None:
        self._closed, self._by_itself = self.widget.chosen is None, False
        self._again_at, self._pause = 0.0, _EMPTY_S
        if not self._closed:
            self.context.ask()

    def run_began(self) -> None:
        self._closed = False
        if self._by_itself:
            self._open(None)

    def _open(self, rank: int | None) -> None:
        """Show this rank, which nobody has asked for; None: close the panel again."""
        if rank != self.widget.chosen:
            self.widget.choose(rank)
        self._by_itself = rank is not None

    def refresh(self, head: Head) -> None:
        del head
        self.widget.draw()

    def show_picture(self, picture: Picture) -> None:
        present = self.context.present
        if present is None:
            return
        held = _held_at_a_line(picture.recording)
        free = self._by_itself or self.widget.chosen is None
        if held and free and not self._closed and self.widget.chosen not in held:
            self._open(held[0])
        self.widget.show_now(present.tiles, picture.recording)
        tiles = [self.widget.tile_of(rank) for rank in self.widget.ranks]
        stand = [tile for tile in tiles if tile is not None and tile.state in _STANDS]
        if tiles and len(stand) == len(tiles) and self._place(picture.recording) != self._read_at:
            self._read_at = self._place(picture.recording)
            self.context.ask()
        elif present.busy and self._is_due():
            self.context.ask()

    def _is_due(self) -> bool:
        """Whether a shown rank, which had not begun with the user's code when it was read, is to be read again."""
        now, tiles = time.monotonic(), {rank: self.widget.tile_of(rank) for rank in self.widget.ranks}
        empty = [tile for rank, tile in tiles.items() if tile is not None and not self.widget.has_frames(rank)]
        if now < self._again_at or all(tile.state in _GONE for tile in empty):
            return False
        self._again_at, self._pause = now + self._pause, min(_EMPTY_AT_MOST_S, self._pause * 1.5)
        return True

    def show_recording(self, recording: Recording, diagnosis: Diagnosis | None) -> None:
        if self.context.shown is not None:
            findings = diagnosis.findings if diagnosis is not None else ()
            self.widget.show_now(boards.tiles(recording, findings), recording)
        elif self.context.picture is not None:
            self._read_at = self._place(self.context.picture.recording)
        self.widget.show_recording(recording)
        self.values.due()

    def outcome_known(self, diagnosis: Diagnosis | None) -> None:
        """At a hang, show the rank that is to blame, or one that is on a side or waits if only that one has a stack."""
        present, taken = self.context.present, self.widget.chosen is not None or self._closed
        if diagnosis is None or diagnosis.outcome != "hang" or taken or present is None or present.over:
            return
        named = [
            (*one.culprits, *(rank for side in one.sides for rank in side), *one.waiting) for one in diagnosis.errors
        ]
        ranks = [rank for ranks in named for rank in ranks]
        first = next((rank for rank in ranks if self.widget.has_frames(rank)), ranks[0] if ranks else None)
        if first is not None:
            self._open(first)
            if self.context.picture is not None:
                self._read_at = self._place(self.context.picture.recording)
            self.values.due()

    def _place(self, recording: Recording) -> object:
        """Where the shown ranks stand, and since when."""
        return [_place(self.widget.tile_of(rank), recording.taken_ns) for rank in self.widget.ranks]

    def _controls(self) -> Controls:
        context, picture = self.context, self.context.picture
        moved = picture is not None and context.shown is None and self._place(picture.recording) != self._read_at
        return Controls(
            alive=not context.world.closed and context.shown is None,
            acts_on=self.widget.whom,
            busy=any(what in context.tasks.busy for what in ("stepping", "resuming")),
            moved=moved and bool(self.widget.recording.ranks),
            held=any(
                tile is not None and tile.state is RankState.HELD for tile in map(self.widget.tile_of, self._whom())
            ),
            marks=self._marks(),
            names=self.values.names,
            answer=context.tasks.answer(self.name),
        )

    def _whom(self) -> tuple[int, ...]:
        """The ranks that the buttons act on."""
        shown = self.widget.ranks
        return {"all": tuple(range(self.context.world.size)), "shown": shown}.get(self.widget.whom, shown[:1])

    # -- what somebody does

    def act(self, action: str, values: Mapping[str, str]) -> bool:
        if self.widget.take(action, values):
            if action in ("open", "frame"):
                self.values.due()
            elif action in ("rank", "rank close", "rank beside"):
                self._opened()
            return True
        does: dict[str, Callable[[], None]] = {
            "rank resume": lambda: self._do("resume"),
            "rank hold": lambda: self._do("hold at"),
            "rank look": self.context.ask,
            "arm": lambda: self._arm(values),
            "arm with": lambda: self._arm(values, with_conditions="1"),
            "arm switch": lambda: self._arm(values, switch="1"),
            "watch": lambda: self._watch(values.get("expression", "")),
            "unwatch": lambda: self.values.unwatch(values.get("path", "")),
        }
        if action in _STEPS:
            self._do("next step", how=_STEPS[action])
        elif action in does:
            does[action]()
        else:
            return False
        return True

    def _do(self, action: str, **more: str) -> None:
        """An action of the dashboard, on the ranks that are chosen; its answer is shown in the panel."""
        ranks = "" if self.widget.whom == "all" else ",".join(map(str, self._whom()))
        if action in ("next step", "resume"):
            self._read_at = None  # it may stop at the same place again
        self.context.actions.take(action, {"ranks": ranks, **more}, self.name)

    def _arm(self, values: Mapping[str, str], **how: str) -> None:
        """Arm a hold at a line that is shown, also with conditions; switch it off or on; or remove it."""
        file, given = self.widget.file_of(values), {name: values.get(name, "") for name in ("line", "when", "count")}
        if not file:
            return
        self._do("hold line", file=file, **given, **how)
        if "switch" not in how and not ("with_conditions" in how and _is_wrong(given)):
            self.widget.take("arm close", {})

    def _marks(self) -> dict[tuple[str, int], Mark]:
        """The holds of the lines of the files in which the ranks are."""
        found: dict[tuple[str, int], Mark] = {}
        for one, held in self.context.holds():
            hold, line = one.hold, one.place.line
            for file in self.widget.files:
                if one.is_at(file, line):
                    found[file, line] = Mark(one.on, held, hold.when or hold.differs, hold.count)
        return found

    def _watch(self, expression: str) -> None:
        self.context.tasks.start("watching", lambda: self.values.watch(expression.strip()), self.name, again=True)


def _is_wrong(given: Mapping[str, str]) -> bool:
    """Whether these conditions of a hold cannot be armed: their form then stays."""
    try:
        Hold(when=given["when"].strip(), count=asked.whole(given, "count") or 1)
    except UsageError:
        return True
    return False


def _place(tile: Tile | None, taken_ns: int) -> object:
    """Where a rank stands, and since when, in hundredths of a second; of one that moves, only that."""
    if tile is None or tile.state not in _STANDS:
        return tile.state if tile is not None else None
    since = (
        round((taken_ns * 1e-9 - tile.since_s) * 100)
        if tile.since_s is not None and tile.state is RankState.HELD
        else 0
    )
    return tile.state, tile.doing, tile.site, since


def _held_at_a_line(recording: Recording) -> list[int]:
    """The ranks that a hold at a line, or an exception, has stopped."""
    return [rank for rank, one in sorted(recording.ranks.items()) if one.events(Held, state="open")]
