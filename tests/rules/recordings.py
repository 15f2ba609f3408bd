"""Recordings written by hand.

A test says what each rank did, in the order in which it did it; calls are counted as the door
counts them, and every rank's nth step happens at the same moment.

    script = Script('''
    def main(rank):
        all_reduce(x)   # reduce
        if rank == 0:
            barrier()   # barrier
    ''')
    recording = record(
        Rank(0).calls("all_reduce", script.at("reduce")).waits("barrier", script.at("barrier")),
        Rank(1).calls("all_reduce", script.at("reduce")).finishes(),
        script=script,
    )
"""

from __future__ import annotations

import textwrap
from functools import partial
from typing import Any

from ddpnb.recording.calls import NO_SITE, Call, CallState, Group, Signature, Site
from ddpnb.recording.ending import Ending
from ddpnb.recording.events import Event, read
from ddpnb.recording.executed_lines import ExecutedLine, ExecutedLines, Window
from ddpnb.recording.facts.snapshot import Snapshot
from ddpnb.recording.findings import Finding
from ddpnb.recording.recording import Child, Process, RankRecord, Recording
from ddpnb.recording.stacks import Frame, Stack
from ddpnb.rules import diagnose as module
from ddpnb.rules import engine
from ddpnb.rules.rule import Find
from tests.rules.training import Training

#: as for a job that nobody watches: rules that need patience make errors
diagnose = partial(module.diagnose, end_after_patience=True)

FILE = "/home/user/train.py"
MILLISECOND = 1_000_000
MAIN_THREAD = 7
TORCH_FRAME = Frame("/venv/lib/torch/distributed/distributed_c10d.py", 3000, "wrapper", user=False)


class Script:
    """The user's file. A line is named by the comment at its end."""

    def __init__(self, text: str, file: str = FILE) -> None:
        self.text = textwrap.dedent(text).strip("\n") + "\n"
        self.file = file

    def line(self, mark: str) -> int:
        found = [number for number, line in enumerate(self.text.splitlines(), 1) if line.endswith(f"# {mark}")]
        assert len(found) == 1, f"{len(found)} lines are marked {mark!r}"
        return found[0]

    def at(self, mark: str, function: str = "main") -> Site:
        return Site(self.file, self.line(mark), function)


def line(number: int, function: str = "main") -> Site:
    """A line of a file whose text nobody has."""
    return Site(FILE, number, function)


def group(*ranks: int, ordinal: int = 0, label: str = "") -> Group:
    return Group(ranks, ordinal, label=label)


def world_group(size: int) -> Group:
    return Group(tuple(range(size)), label="default_pg")


def signature(op: str, shape: tuple[int, ...] = (4,), dtype: str = "float32", **more: Any) -> Signature:
    """As the door describes it: what all ranks must give alike stands in ``agreed``."""
    elements = 1
    for size in shape:
        elements *= size
    agreed = [op]
    if op.startswith("all_to_all"):
        agreed.append(dtype)
    elif op not in ("barrier", "send", "recv", "recv_any_source"):
        agreed.append(f"{elements} {dtype} {more.get('layout') or ''}")
    if more.get("reduce_op"):
        agreed.append(more["reduce_op"])
    if more.get("root") is not None:
        agreed.append(f"root {more['root']}")
    shapes, dtypes = ((), ()) if op == "barrier" else ((shape,), (dtype,))
    return Signature(op, shapes, dtypes, agreed="|".join(agreed), **more)


class Rank(Training):
    """What one rank did. Every method adds one step and gives the rank back."""

    def __init__(self, rank: int, world: int = 4) -> None:
        super().__init__()
        self.rank = rank
        self.world = world
        self._calls: list[Call] = []
        self._history: list[Event] = []
        self._stacks: list[Stack] = []
        self._process = Process("computing")
        self._ending: Ending | None = None
        self._steps = 0
        self._forgotten = 0
        self._events_forgotten = 0
        self._forwards = 0
        self._children: tuple[Child, ...] = ()
        self._output = ""
        self._unseen: tuple[str, ...] = ()
        self._windows: list[tuple[int, int, int, list[Site]]] = []
        self.joins()

    # -- events

    def joins(self) -> Rank:
        """Ran through init_process_group; every rank does so, unless ``absent`` says otherwise."""
        return self.phase("init_process_group", "done", world_size=self.world)

    def joined(self, at: Site = NO_SITE, **facts: Any) -> Rank:
        """The same with other facts, in its place."""
        self.absent()
        return self.phase("init_process_group", "done", at, **{"world_size": self.world, **facts})

    def absent(self) -> Rank:
        self._history = [event for event in self._history if event.title != "init_process_group"]
        return self

    def starts(self, at: Site = NO_SITE, world_size: object = None, **facts: Any) -> Rank:
        """Stands in init_process_group."""
        self.absent()
        self._idle(0.0, at)
        return self.phase("init_process_group", "open", at, world_size=world_size or self.world, **facts)

    def makes_group(self, ranks: list[int], at: Site = NO_SITE, state: str = "done", **facts: Any) -> Rank:
        """Ran through new_group (or stands in it: ``state="open"``); torch names groups by counting all of them."""
        if state == "open":
            self._idle(0.0, at)
        made = sum(1 for event in self._history if event.title == "new_group")
        return self.phase("new_group", state, at, ranks=ranks, **{"local": False, "name": str(1 + made), **facts})

    def leaves_world(self) -> Rank:
        return self.phase("destroy_process_group", "done")

    def phase(self, name: str, state: Any, at: Site = NO_SITE, /, **facts: Any) -> Rank:
        """Any event; ``facts`` are what is recorded of it."""
        where = {} if at == NO_SITE else {"file": at.file, "line": at.line, "function": at.function}
        now = self._now()
        self._history.append(read(name, {**facts, **where}, state, now, 0 if state == "open" else now))
        return self

    def passes(self, number: int, name: str, at: Site = NO_SITE, *, visit: int = 1) -> Rank:
        """Passed a numbered checkpoint."""
        return self.phase("checkpoint", "done", at, number=number, name=name, visit=visit)

    # -- calls

    def calls(self, op: str, at: Site = NO_SITE, *, state: CallState = CallState.COMPLETED, **more: Any) -> Rank:
        """Made a call; ``more`` describes it (group, shape, dtype, root, peer, tag, number, seq, thread, ...)."""
        members = more.pop("group", None) or world_group(self.world)
        p2p = op in ("send", "recv", "recv_any_source")
        counted = sum(1 for call in self._calls if call.seq and call.group.key == members.key)
        fields: dict[str, Any] = {
            "number": more.pop("number", len(self._calls)),
            "seq": more.pop("seq", 0 if p2p else counted + 1),
            "thread": more.pop("thread", MAIN_THREAD),
            "entered_ns": self._now(),
            "issued_ns": self._now(),
            "done_ns": 0 if state.in_flight else self._now(),
        }
        for name in ("peer", "tag", "timeout_ms", "turn", "asked_ns"):
            if name in more:
                fields[name] = more.pop(name)
        if p2p:
            channel = (op, fields.get("peer", -1), fields.get("tag", 0), members.key)
            earlier = sum((c.op, c.peer, c.tag, c.group.key) == channel for c in self._calls)
            fields.setdefault("turn", earlier + 1)
        described = more.pop("signature", None) or signature(op, **more)
        self._calls.append(Call(group=members, signature=described, site=at, state=state, **fields))
        return self

    def issues(self, op: str, at: Site = NO_SITE, **more: Any) -> Rank:
        """Began a call and went on."""
        return self.calls(op, at, state=CallState.ISSUED, **more)

    def waits(self, op: str, at: Site = NO_SITE, *, idle: float = 0.5, **more: Any) -> Rank:
        """Stands in a call, on its main thread."""
        self.calls(op, at, state=CallState.WAITING, **more)
        return self._idle(idle, at, TORCH_FRAME)

    def sends(self, peer: int, at: Site = NO_SITE, **more: Any) -> Rank:
        return self.calls("send", at, peer=peer, **more)

    def receives(self, peer: int, at: Site = NO_SITE, **more: Any) -> Rank:
        return self.calls("recv", at, peer=peer, **more)

    def forgets(self, calls: int) -> Rank:
        """So many calls are older than what is recorded."""
        self._forgotten = calls
        return self

    def forgets_events(self, events: int) -> Rank:
        """So many events are older than what is recorded."""
        self._events_forgotten = events
        return self

    def has_run_forward(self, times: int) -> Rank:
        """Its wrapped models, so often."""
        self._forwards = times
        return self

    # -- its children and its output

    def has_loaded(self, *unseen: str) -> Rank:
        """These may communicate there without passing the door."""
        self._unseen = unseen
        return self

    def has_children(self, *children: Child) -> Rank:
        self._children = children
        return self

    def writes(self, output: str) -> Rank:
        self._output += output
        return self

    # -- what the rank does now

    def computes(self, at: Site = NO_SITE) -> Rank:
        self._process = Process("computing")
        return self._stands(at)

    def idles(self, seconds: float, at: Site = NO_SITE, **more: Any) -> Rank:
        """Neither computes nor reads nor writes; ``more`` goes into its Process."""
        return self._idle(seconds, at, **more)

    def stops(self, seconds: float, at: Site = NO_SITE) -> Rank:
        """Was stopped by a signal."""
        self._process = Process("stopped", seconds, answered=False)
        return self._stands(at)

    def is_gone(self) -> Rank:
        self._process = Process("gone")
        return self

    def _idle(self, seconds: float, at: Site, *above: Frame, **more: Any) -> Rank:
        self._process = Process("idle", seconds, **more)
        return self._stands(at, *above)

    def _stands(self, at: Site, *above: Frame) -> Rank:
        frames = () if at == NO_SITE else (Frame(at.file, at.line, at.function),)
        return self.has_stack(*frames, *above) if frames or above else self

    def has_stack(self, *frames: Frame, thread: int = MAIN_THREAD) -> Rank:
        """The frames of one thread, outermost first, in place of what was said of it before."""
        self._stacks = [stack for stack in self._stacks if stack.native_id != thread]
        self._stacks.append(Stack(f"thread {thread}", frames, thread, main=thread == MAIN_THREAD))
        return self

    # -- how it ended

    def finishes(self) -> Rank:
        return self._ends(Ending("finished", at_ns=self._now()))

    def exits(self, code: int, at: Site = NO_SITE, asked: int | None = None) -> Rank:
        """``at``: where it called sys.exit(); nowhere: it has raised SystemExit."""
        frames = () if at == NO_SITE else (Frame(at.file, at.line, at.function),)
        return self._ends(Ending("exited", code, frames=frames, at_ns=self._now(), asked=asked))

    def raises(self, exception: str, message: str = "", at: Site = NO_SITE, *above: Frame) -> Rank:
        """The script ended by an exception; ``above`` are the frames inside the user's line."""
        frames = () if at == NO_SITE else (Frame(at.file, at.line, at.function),)
        return self._ends(Ending("raised", 1, exception, message, (*frames, *above), at_ns=self._now()))

    def dies(self, code: int) -> Rank:
        """The process ended by itself; a negative code is the signal."""
        return self._ends(Ending("died", code, at_ns=self._now()))

    def _ends(self, ending: Ending) -> Rank:
        self._ending, self._process, self._stacks = ending, Process("gone"), []
        return self

    # -- what it executed

    def runs(self, script: Script, marks: str, function: str = "main") -> Rank:
        """Executed the lines with these marks, in a window of its own that begins here; ``read:rows``: in function ``read``."""
        named = [mark.rpartition(":") for mark in marks.split()]
        path = [script.at(mark, own or function) for own, _, mark in named]
        self._windows.append((self._now(), len(self._calls), sum(self._stepped.values()), path))
        return self

    def _executed(self) -> ExecutedLines | None:
        numbers: dict[Site, list[int]] = {}
        for number, (*_, path) in enumerate(self._windows, 1):
            for site in path:
                numbers.setdefault(site, []).append(number)
        every = list(numbers)
        return (
            ExecutedLines(
                tuple(ExecutedLine(site, n[0], n[-1], len(set(n))) for site, n in numbers.items()),
                tuple(Window(n, at, calls, steps, n - 1) for n, (at, calls, steps, _) in enumerate(self._windows, 1)),
                tuple(tuple(map(every.index, dict.fromkeys(path))) for *_, path in self._windows),
            )
            if every
            else None
        )

    def _now(self) -> int:
        self._steps += 1
        return self._steps * MILLISECOND

    @property
    def record(self) -> RankRecord:
        return RankRecord(
            self.rank,
            1000 + self.rank,
            tuple(self._calls),
            tuple(self._history),
            tuple(self._stacks),
            self._process,
            self._ending,
            sum(self._stepped.values()),
            self._forgotten,
            tuple(self._models),
            tuple(self._samples),
            self._children,
            self._output,
            forwards=self._forwards,
            events_forgotten=self._events_forgotten,
            lines=self._executed(),
            marks=tuple(self._marks),
            unseen=self._unseen,
        )


def record(*ranks: Rank, script: Script | None = None, world_size: int | None = None, **host: Any) -> Recording:
    """The Recording of these ranks; ``host`` are facts of their machine."""
    return Recording(
        world_size if world_size is not None else len(ranks),
        {rank.rank: rank.record for rank in ranks},
        {script.file: script.text} if script is not None else {},
        host=host,
    )


def recorded(make, world=4, script=None):
    """``make(rank)`` says what each rank did."""
    return record(*(make(Rank(number, world)) for number in range(world)), script=script)


def asked(which: str | Find, recording: Recording, *failures: Finding) -> list[Finding]:
    """What a rule finds, asked alone: this one, or those of a code, not those that refine another or give way to it."""
    rules = [
        rule
        for rule in engine.rules()
        if rule.find is which or (which in rule.codes and not rule.refines and which not in rule.after)
    ]
    found = engine.ask(Snapshot(recording, failures=failures), rules)
    return [one for one in found if callable(which) or one.code == which]


def refined(recording: Recording, finding: Finding, patience: float = 10.0) -> Finding:
    """What the more specific rules make of a failure."""
    snap = Snapshot(recording, patience, failures=(finding,))
    engine.ask(snap, [rule for rule in engine.rules() if rule.refines])
    return snap.failures[0]


def failures(recording: Recording, patience: float = 10.0) -> list[Finding]:
    """Why ranks failed or are blocked, before more specific rules are asked."""
    return engine.ask(Snapshot(recording, patience), [r for r in engine.rules() if r.failure and not r.refines])


def the_finding(rule, recording):
    """What the rule finds, which the diagnosis says too."""
    found = rule(recording)
    assert found.summary and found.remedy
    assert found in diagnose(recording).findings
    return found


def only_finding(recording: Recording) -> Finding:
    """The one finding of a hang."""
    found = diagnose(recording)
    assert found.outcome == "hang"
    assert found.settled
    assert len(found.findings) == 1, [one.summary for one in found.findings]
    return found.findings[0]
