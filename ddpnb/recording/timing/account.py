"""The time account: where the time of every rank went, and which ranks the others waited for.

What is measured how. Every collective leaves the moment at which it was entered, and when it was
done as far as Python saw it; marks tell when backward passes and optimizer steps ended, and the CPU
time of the main thread. From the arrival of a rank to the arrival of the last it *waits*; from then
until it continues it *communicates*. That counts only where the main thread was blocked:

- a call that Python waits for: from its entry to its end;
- the last call before the end of a backward pass, whose end nobody in Python saw (DDP waits in C++):
  from its entry to the end of the pass;
- what was begun asynchronously, with other calls in its shadow, does not count; nor do calls of
  other threads, nor those on a GPU, for which the host does not wait.

All that is claimed between two marks is shortened to the time in which the main thread neither used
a CPU nor stood in the queue for one (where the host tells that), so that communication in the shadow
of computing is not taken for a stop.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import replace

from ddpnb.recording.account import Account, Parts, RankAccount
from ddpnb.recording.calls import Call, CallState, Group
from ddpnb.recording.marks import Mark
from ddpnb.recording.recording import Recording
from ddpnb.recording.timing.notes import model_notes, notes, start_notes
from ddpnb.recording.timing.stragglers import name_stragglers
from ddpnb.recording.timing.timed_collectives import MOST_BLAMED, Claim, TimedCollective, blocks_host, seen_by_peers
from ddpnb.recording.timing.timeline import COMMUNICATION, HELD, Key, Spent, Timeline

_COLLECTIVES = 20_000  # incomplete ones kept; the oldest are dropped
_OPEN = 8192  # calls of a rank without a recorded end
_CLOCKS_NS = 1_000_000  # completed this long before the last arrival: the clocks differ


class _Open:
    """A call that is not complete yet."""

    __slots__ = ("call", "collective", "next_ns")

    def __init__(self, call: Call, collective: TimedCollective | None) -> None:
        self.call = call
        self.collective = collective
        self.next_ns: int | None = None  # when the main thread made its next call


class _Rank:
    """What is kept of a rank beside its time line."""

    def __init__(self) -> None:
        self.open: dict[int, _Open] = {}
        self.highest = -1
        self.tail: _Open | None = None  # the last call of the main thread
        self.counts: dict[int, int] = {}  # highest sequence number per group
        self.seen = 0
        self.lost = 0
        self.unknown = 0  # calls whose other ranks were never recorded
        self.on_gpu = 0
        self.late: Counter[Key] = Counter()  # ranks that arrived later than this rank's host, which was not blocked
        self.ended_ns = 0


Timelines = Mapping[int, Timeline]


class Ledger:
    """Takes calls and marks of the ranks incrementally and computes the account. Never raises on invalid input.

    Calls may come again when more is known of them. Memory is bounded, however long the run is.
    """

    def __init__(self) -> None:
        self._ranks: dict[int, _Rank] = {}
        self._timelines: dict[int, Timeline] = {}
        self._collectives: dict[Hashable, TimedCollective] = {}
        self._groups: dict[Group, int] = {}
        self._times_last: Counter[int] = Counter()
        self._clocks_differ = 0

    def take(
        self,
        rank: int,
        calls: Iterable[Call],
        marks: Iterable[Mark] = (),
        lost: int = 0,
        ended_ns: int = 0,
        queued: tuple[int, int] | None = None,
    ) -> None:
        """Add calls and marks of one rank, each in the order of their recording.

        Args:
            rank: whose they are.
            calls: new ones, and those of which more is known than last time.
            marks: new ones; among them all from before the end of these calls.
            lost: calls that nobody could read in time.
            ended_ns: when the script ended on this rank; 0 while it runs.
            queued: a moment, and how long the main thread had waited for a core by then, if known.
        """
        known = self._ranks.setdefault(rank, _Rank())
        timeline = self._timelines.setdefault(rank, Timeline())
        known.lost += max(0, lost)
        known.ended_ns = max(known.ended_ns, ended_ns)
        timeline.take(marks)
        if queued is not None:
            timeline.queued(*queued)
        touched = {call.number: opened for call in calls if (opened := self._register(rank, call)) is not None}
        for opened in touched.values():
            if not opened.call.state.in_flight:
                self._settle(rank, opened)
        timeline.fold()
        while len(known.open) > _OPEN:
            del known.open[next(iter(known.open))]
        while len(self._collectives) > _COLLECTIVES:
            self._give_up(next(iter(self._collectives)))

    # -- new calls

    def _register(self, rank: int, call: Call) -> _Open | None:
        known, timeline = self._ranks[rank], self._timelines[rank]
        opened = known.open.get(call.number)
        if opened is not None:
            opened.call = call
            if seen_by_peers(call):
                return opened
            if opened.collective is not None:
                opened.collective.withdraw(rank)
            del known.open[call.number]
            return None
        if call.number <= known.highest or not seen_by_peers(call):
            return None
        known.highest = call.number
        known.seen += 1
        timeline.saw(call.entered_ns)
        if timeline.main is None:
            timeline.main = call.thread
        opened = known.open[call.number] = _Open(call, self._arrive(rank, call))
        if call.thread == timeline.main:
            if known.tail is not None:
                known.tail.next_ns = call.entered_ns
            known.tail = opened
        return opened

    def _arrive(self, rank: int, call: Call) -> TimedCollective | None:
        known = self._ranks[rank]
        if not blocks_host(call):
            known.on_gpu += 1
        group = self._groups.setdefault(call.group, len(self._groups))
        key = TimedCollective.key_of(call, rank, group)
        if key is None:
            return None
        collective = self._collectives.get(key)
        if collective is None:
            collective = self._collectives[key] = TimedCollective(key, call)
        collective.arrive(rank, call.entered_ns)
        if call.seq:
            known.counts[group] = max(call.seq, known.counts.get(group, 0))
        if not blocks_host(call):
            collective.hosts.append(Claim(rank, call.entered_ns, 0, call.site))
        if collective.complete or rank == collective.root:
            waiting, collective.claims = collective.claims, []
            for claim in waiting:
                if not self._divide(collective, claim, self._timelines):
                    collective.claims.append(claim)
        if collective.complete:
            self._all_arrived(collective)
        return collective

    def _all_arrived(self, collective: TimedCollective) -> None:
        if collective.spread > _CLOCKS_NS:
            self._times_last[max(collective.arrived, key=lambda rank: collective.arrived[rank])] += 1
        for host in collective.hosts:
            last, late = collective.last(host.rank)
            for rank in late:
                self._ranks[host.rank].late[rank, host.site] += max(0, last - host.at) // len(late)
        collective.hosts = []

    # -- ended calls

    def _settle(self, rank: int, opened: _Open) -> None:
        self._ranks[rank].open.pop(opened.call.number, None)
        claim, collective = self._claim(rank, opened), opened.collective
        if claim is not None:
            self._timelines[rank].saw(claim.end)
            if collective is None:
                _book(self._timelines[rank], claim)
            elif not self._divide(collective, claim, self._timelines):
                collective.claims.append(claim)
        if collective is not None:
            collective.ended += 1
            if collective.over:
                self._collectives.pop(collective.key, None)

    def _claim(self, rank: int, opened: _Open, now: int = 0) -> Claim | None:
        """How long this call blocked the main thread, as far as known."""
        call, timeline = opened.call, self._timelines[rank]
        if call.thread != timeline.main or not blocks_host(call):
            return None
        begin, done, mark = call.entered_ns, call.done_ns, timeline.after(call.entered_ns)
        over = call.state is CallState.COMPLETED
        if done and (mark is None or done <= mark[0]):
            claim = Claim(rank, begin, done, call.site, over=over)
        elif mark is not None:
            backward = mark[1] == "backward"
            claim = Claim(rank, begin, mark[0], call.site, certain=backward, waits_only=not backward, over=over)
        elif call.state in (CallState.WAITING, CallState.ENTERED):
            claim = Claim(rank, begin, now, call.site, certain=True, over=False)
        else:
            return None
        overlapped = opened.next_ns is not None and opened.next_ns < claim.end
        return claim if claim.end > begin and not overlapped else None

    def _divide(self, collective: TimedCollective, claim: Claim, timelines: Timelines) -> bool:
        """Divide what a rank claims into waiting and communication; False if that is not known yet."""
        if not collective.ready(claim.rank):
            return False
        last, late = collective.last(claim.rank)
        if claim.over and not claim.waits_only and last > claim.end + _CLOCKS_NS:
            self._clocks_differ += timelines is self._timelines
            last, late = 0, ()
        _book(timelines[claim.rank], claim, last, late)
        return True

    def _give_up(self, key: Hashable) -> None:
        """No further arrivals will be known: the calls count as communication."""
        for claim in self._collectives.pop(key).claims:
            self._ranks[claim.rank].unknown += 1
            _book(self._timelines[claim.rank], claim)

    # -- the account

    def account(self, now_ns: int = 0, cores: float = 0) -> Account:
        """Where the time went up to now.

        Args:
            now_ns: what the clock shows; by default the moment of the last thing that is known.
            cores: of the machine, to tell whether the ranks have more threads than it has cores.
        """
        now = max([now_ns, *(timeline.last or 0 for timeline in self._timelines.values())])
        books, unknown = {rank: timeline.copy() for rank, timeline in self._timelines.items()}, Counter[int]()
        for collective, claim in self._pending(now):
            if collective is not None and self._divide(collective, claim, books):
                continue
            late = () if collective is None or claim.over else self._still_missing(collective, claim.rank)
            unknown[claim.rank] += not late
            _book(books[claim.rank], claim, claim.end, late)
        for book in books.values():
            book.claim_hold(now)
        spent = {rank: books[rank].spent() for rank in sorted(books)}
        ranks = tuple(_rank_account(rank, self._ranks[rank], books[rank], spent[rank], now) for rank in spent)
        gpu, seen = sum(one.on_gpu for one in self._ranks.values()), sum(one.seen for one in self._ranks.values())
        host_only = gpu > seen / 2
        waits = {rank: self._ranks[rank].late if host_only else spent[rank].training for rank in spent}
        stragglers, pattern = name_stragglers(ranks, waits, self._times_last)
        missed = sum(one.unknown for one in self._ranks.values()) + unknown.total()
        made = seen + sum(one.lost for one in self._ranks.values())
        covered = max(0.0, (seen - missed) / made) if made else 1.0
        result = Account(ranks, stragglers, pattern, covered, host_only)
        general = notes(result, clocks_differ=self._clocks_differ, cores=cores)
        return replace(result, notes=(*start_notes(result, [one.start for one in spent.values()]), *general))

    def _pending(self, now: int) -> list[tuple[TimedCollective | None, Claim]]:
        """Claims of calls that have not ended, or at which ranks are missing."""
        pending: list[tuple[TimedCollective | None, Claim]] = [
            (collective, claim) for collective in self._collectives.values() for claim in collective.claims
        ]
        for rank, known in self._ranks.items():
            for opened in known.open.values():
                claim = self._claim(rank, opened, now)
                if claim is not None:
                    pending.append((opened.collective, claim))
        return pending

    def _still_missing(self, collective: TimedCollective, rank: int) -> tuple[int, ...]:
        """The ranks that this rank waits for, if certain: a lost call looks like one that was never issued."""
        missing = collective.missing_ranks(rank)
        for other in missing:
            known = self._ranks.get(other)
            if known is None or (
                known.counts.get(self._groups[collective.group], 0) > collective.seq if collective.seq else known.lost
            ):
                return ()
        return missing[:MOST_BLAMED]


def _book(timeline: Timeline, claim: Claim, last: int = 0, late: tuple[int, ...] = ()) -> None:
    """Until ``last`` it was waiting for ``late``, the rest is communication."""
    waited = max(0, min(last, claim.end) - claim.at) if late else 0
    for rank in late:
        timeline.claim(claim.at, (rank, claim.site), waited // len(late), certain=claim.certain)
    if not claim.waits_only:
        timeline.claim(claim.at, COMMUNICATION, claim.end - claim.at - waited, certain=claim.certain)


def _rank_account(rank: int, known: _Rank, timeline: Timeline, spent: Spent, now: int) -> RankAccount:
    ended = timeline.ended or known.ended_ns
    end = max(ended or now, timeline.last or 0)
    first = timeline.started if timeline.started is not None else end
    begin = timeline.began if timeline.began is not None else min(first, timeline.first or first)
    last = timeline.last if timeline.last is not None and ended else end
    talked, held, waited = spent.training[COMMUNICATION], spent.training[HELD], Counter[int]()
    for (other, _), length in spent.training.items():
        waited[other] += length
    del waited[COMMUNICATION[0]], waited[HELD[0]]
    compute = last - first - spent.training.total() - spent.data
    other = max(0, end - begin - (last - first) + min(0, compute))  # what a data loader took before the first call
    gpu = known.on_gpu > known.seen / 2
    return RankAccount(
        rank,
        max(0, end - begin) * 1e-9,
        Parts(*(ns * 1e-9 for ns in (max(0, compute), waited.total(), talked, spent.data, held))),
        other * 1e-9,
        timeline.steps,
        timeline.step(),
        timeline.pace,
        None if gpu else timeline.utilisation(timeline.threads or 1),
        "cuda" if gpu else "cpu",
        timeline.threads,
        tuple((other, length * 1e-9) for other, length in waited.most_common() if length),
    )


def account(recording: Recording) -> Account:
    """The time account of a Recording: the one that was kept during the run, else from its calls and marks."""
    total = recording.account
    if total is None:
        ledger = Ledger()
        for rank, record in recording.ranks.items():
            ended = record.ending.at_ns if record.ending is not None else 0
            ledger.take(rank, record.calls, record.marks, record.forgotten, ended)
        total = ledger.account(recording.taken_ns)
    return replace(total, notes=(*total.notes, *model_notes(recording)))
