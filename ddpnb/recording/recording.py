"""The Recording: what all ranks did, as the diagnosis gets it.

It has the same form whether it was taken live, read from the black boxes of dead processes or written by hand in a
test.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from ddpnb.recording.account import Account
from ddpnb.recording.calls import Call, CallState
from ddpnb.recording.curves import Curves
from ddpnb.recording.ending import Ending
from ddpnb.recording.events import Event, EventState
from ddpnb.recording.events.runs import (
    Compilation,
    DoorDetached,
    FunctionNotFound,
    Held,
    HooksDetached,
    LinesNotRecorded,
    TorchDiffers,
)
from ddpnb.recording.events.startup import MeshMade
from ddpnb.recording.executed_lines import ExecutedLines
from ddpnb.recording.marks import Mark
from ddpnb.recording.names import given_name
from ddpnb.recording.path import Path
from ddpnb.recording.path_lines import executed
from ddpnb.recording.replicas import Model, Sample
from ddpnb.recording.report import Report
from ddpnb.recording.stacks import Stack
from ddpnb.recording.startup import StartupState
from ddpnb.recording.writers import writers

if TYPE_CHECKING:
    from matplotlib.axes import Axes

E = TypeVar("E", bound=Event)

Activity = Literal["computing", "idle", "stopped", "gone", "unknown"]


@dataclass(frozen=True, slots=True)
class Process:
    """What the host reports of a rank's process (and of its children) between two looks.

    ``idle_s`` is for how long neither the process nor its children computed or read or wrote;
    ``wakes_in_s`` is set when the main thread sleeps until a known moment; ``waits_on`` is the
    system call and what it waits for, in words; ``held_up_by`` are the ranks that hold the file lock which it waits for, -1 for another program.
    """

    activity: Activity = "unknown"
    idle_s: float = 0.0
    wakes_in_s: float | None = None
    waits_on: str = ""
    answered: bool = True  # on its control channel
    holds_lock: bool = False  # py-spy saw a thread that waits in native code and holds the GIL
    still_s: float = 0.0  # for how long the main thread has been at the same place
    memory: int = 0  # bytes that the process itself has in memory; 0: not known
    cores: float | None = None  # that it and its children kept busy in the last second
    device_memory: int = 0  # bytes in use on its GPU, by any process; 0: not known, or none
    device_total: int = 0
    device_busy: float | None = None  # share of the time in which its GPU ran a kernel
    held_up_by: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Child:
    """A process that a rank has started: a data loader's worker, an environment, a forked copy of it.

    ``stacks`` are read only when the rank is blocked and waits for it. ``stuck``: its only thread waits for a lock in its own
    memory, which nobody can release.
    """

    pid: int
    command: str = ""
    status: str = ""  # the kernel's letter: S sleeps, R runs, T stopped, Z ended and not yet waited for
    idle_s: float = 0.0
    stacks: tuple[Stack, ...] = ()
    stuck: bool = False


@dataclass(frozen=True, slots=True)
class RankRecord:
    """Everything known of one rank. ``calls`` and ``history`` are in the order in which they began."""

    rank: int
    pid: int = 0
    calls: tuple[Call, ...] = ()
    history: tuple[Event, ...] = ()  # all events
    stacks: tuple[Stack, ...] = ()
    process: Process = field(default_factory=Process)
    ending: Ending | None = None
    steps: int = 0
    forgotten: int = 0  # calls of the run that are older than those recorded here
    models: tuple[Model, ...] = ()
    samples: tuple[Sample, ...] = ()  # of the replicas; where all ranks agree only the last are kept
    children: tuple[Child, ...] = ()
    output: str = ""  # the end of what it wrote
    forwards: int = 0  # of wrapped models
    device: str = ""  # cpu, cuda:0; empty: not known
    events_forgotten: int = 0  # events of the run that are older than those recorded here
    unnamed: int = 0  # names and facts of calls and events that did not fit into the box
    marks: tuple[Mark, ...] = ()  # the last ones; the account of the Recording has seen all
    unrecorded: bool = False  # no recorder runs in it: its calls and events are not known, only its stacks
    reported: bool = False  # ddpnb did not record it: all that is known was read from logs and dumps
    partial: bool = False  # of a report that shows only some of its calls: others may be missing between them
    # Of a report: by group, the number of the last collective that it called, where that call itself is not in the report.
    reached: Mapping[str, int] = field(default_factory=dict[str, int])
    # Of a report that says no more of it: a "call" timed out or failed, or it lost the connection to the "store".
    lost: Literal["", "call", "store"] = ""
    lines: ExecutedLines | None = None  # as recordings of versions before 0.1 have them
    path: Path | None = None  # None: not recorded, as with Python 3.11
    # How a process failed that was no rank yet, where this is the only one that is missing.
    unjoined: Ending | None = None
    unseen: tuple[str, ...] = ()  # what is loaded there that may communicate without passing the door

    def events(self, *kinds: type[E], state: EventState | None = None) -> list[E]:
        """Its events of these kinds, in the order in which they began; ``state``: only those in this state."""
        return [e for e in self.history if isinstance(e, kinds) and (state is None or e.state == state)]

    @property
    def executed(self) -> ExecutedLines | None:
        """The lines of the user's code that it executed, by its path; None: not recorded."""
        if self.path is None:
            return self.lines
        return executed(
            self.path,
            self.calls,
            self.forgotten,
            {mark.steps: mark.at_ns for mark in self.marks if mark.kind == "step"},
        )

    def begun_before(self, call: Call) -> int:
        """How many calls of the run the rank had begun before this one of its recorded calls."""
        return self.forgotten + call.number - self.calls[0].number

    @property
    def compiling(self) -> Compilation | None:
        """What torch.compile is compiling on this rank now."""
        last = next(reversed(self.events(Compilation)), None)
        if last is None or last.state != "open" or self.ending is not None:
            return None
        return last if not self.calls or self.calls[-1].entered_ns < last.began_ns else None

    @property
    def coordinate(self) -> str:
        """Where it is in the mesh with the most axes: ``dp=1, tp=3``; empty where no mesh has named axes."""
        made = [mesh for mesh in self.events(MeshMade) if mesh.coordinate]
        return max(made, key=lambda mesh: len(mesh.names)).place if made else ""

    @property
    def detached(self) -> bool:
        """Whether a ddpnb hook failed, so that later collectives of the rank are not recorded."""
        return bool(self.events(DoorDetached))

    @property
    def gaps(self) -> tuple[str, ...]:
        """What was not recorded of this rank, in sentences."""
        found: list[str] = []
        if self.unnamed:
            found.append(
                f"The black box of rank {self.rank} is full: the names and facts of some of its calls and events are "
                f"missing ({self.unnamed} did not fit)."
            )
        if self.events_forgotten:
            found.append(
                f"The black box of rank {self.rank} keeps only the last events (start-up, groups, models, data loops): "
                f"{self.events_forgotten} older ones of this run are missing."
            )
        found += [
            f"This version of torch has no {given_name(event.function)}: what rank {self.rank} does there is not recorded."
            for event in self.events(FunctionNotFound)
        ]
        found += [event.sentence for event in self.events(TorchDiffers)[:1]]
        found += [
            f"Hooks of ddpnb failed on rank {self.rank}, and what they watch is not recorded: "
            f"{given_name(event.error.strip().rpartition(chr(10))[2].partition('. Did you mean')[0])}."
            for event in self.events(HooksDetached)[:1]
        ]
        for event in self.events(LinesNotRecorded)[:1]:
            found.append(f"The path of rank {self.rank} is not recorded: {given_name(event.why)}.")
        if self.path is not None and self.path.missing:
            found.append(f"The path of rank {self.rank} is not whole: {given_name(self.path.missing)}")
        if self.detached:
            found.append(
                f"Rank {self.rank} is no longer monitored because a hook of ddpnb failed on it: its later collectives are "
                "not recorded, and it may be blocked in one of them."
            )
        return tuple(found)

    @property
    def mentioned(self) -> bool:
        """Whether anything is known of it: a report need not say something of every rank."""
        return bool(
            self.pid
            or self.calls
            or self.history
            or self.stacks
            or self.ending
            or self.reached
            or self.output
            or self.lost
        )

    @property
    def main_stack(self) -> Stack | None:
        return next((stack for stack in self.stacks if stack.main), None)

    @property
    def shown_stack(self) -> Stack | None:
        """The stack that a user looks at: of a thread that is held at a line, if the main thread is not; else of the main thread."""
        held = {one.native_id for one in self.events(Held, state="open")}
        main = self.main_stack
        if main is not None and main.native_id in held:
            return main
        return next((stack for stack in self.stacks if stack.native_id in held), main)

    @property
    def in_flight(self) -> tuple[Call, ...]:
        return tuple([call for call in self.calls if call.state <= CallState.WAITING])


@dataclass(frozen=True, slots=True)
class Recording:
    """What all ranks did, at one moment.

    ``sources`` holds the text of the user's files that occur in it, so that the analysis can tell
    two branches of one ``if`` from two steps of one path without touching a disk. ``edited`` are those that were
    written after the run began and before they were read: the ranks may have run another text.
    """

    world_size: int
    ranks: Mapping[int, RankRecord]
    sources: Mapping[str, str] = field(default_factory=dict[str, str])
    taken_ns: int = 0
    host: Mapping[str, Any] = field(default_factory=dict[str, Any])  # facts of the machine that the ranks share
    account: Account | None = (
        None  # of the whole run, also of calls and marks that are no longer kept; None: not computed
    )
    startup: StartupState | None = None  # of the last start-up in steps; None: there was none
    report: Report | None = None  # of logs and dumps that it was read from; None: ddpnb recorded it
    edited: tuple[str, ...] = ()
    curves: Curves | None = None  # loss, memory and use over time; None: not recorded
    command: int | None = None  # exit status of the command that started the ranks; None: it runs, or there was none
    # Not part of it: a cache of the analysis.
    known: dict[Any, Any] = field(default_factory=dict[Any, Any], init=False, compare=False, repr=False)

    def __repr__(self) -> str:  # a notebook shows it below a cell that ends with a Recording
        calls = sum(len(record.calls) for record in self.ranks.values())
        return (
            f"<Recording of {len(self.ranks)} of {self.world_size} ranks, {calls:,} calls: ddpnb.show() shows it, "
            "ddpnb.diagnose() says what is wrong>"
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write this Recording to a file that ``ddpnb.load()`` reads, on any machine, without torch.

        It holds the last 1024 calls and time marks of each rank, the phases that are still in its black box, the replica
        samples that differ, and the time account of the whole run. It also holds the text of the user's files, the local
        variables of the user's frames and the end of each rank's output: read SECURITY.md before you send it to somebody.

        Example:
            >>> world.snapshot().save("hang.ddpnb")
            >>> ddpnb.diagnose(ddpnb.load("hang.ddpnb"))

        Raises:
            UsageError: ``path`` is not a path.
            CannotWrite: the disk is full, or the folder does not exist. What was there before stays.
        """
        from ddpnb.recording import recording_file

        recording_file.save(self, path)

    def plot(self, ax: Axes | None = None, *, begin: float | None = None, end: float | None = None) -> Axes:
        """Draw the time line: a lane for each rank, with its calls, how long it waits in each, and what is wrong.

        A new figure has no background, and colours that read well on light and dark pages and on paper
        (``ax.figure.set_frameon(True)`` gives it its background back). Time at the end in which no rank does anything
        new is cut.

        Args:
            ax: Axes to draw on; None: those of a new figure, which a notebook shows.
            begin, end: seconds of the run, as its axis shows them; None: as much as is recorded.

        Returns:
            The Axes; ``ax.figure.savefig()`` saves the figure.

        Raises:
            UsageError: ``ax`` is something else, or ``end`` is not after ``begin``.

        Example:
            >>> ddpnb.load("hang.ddpnb").plot(begin=2.0).figure.savefig("hang.pdf")
        """
        return writers().plot(self, None, ax, begin=begin, end=end)

    def plot_gradients(self, ax: Axes | None = None) -> Axes:
        """Draw the norm of the gradients of each rank by optimizer step, where the replica watch has kept them.

        Args:
            ax: Axes to draw on; None: those of a new figure, which a notebook shows.

        Returns:
            The Axes; ``ax.figure.savefig()`` saves the figure.

        Raises:
            UsageError: ``ax`` is something else.

        Example:
            >>> run.recording.plot_gradients()
        """
        return writers().plot_gradients(self, ax)

    def plot_curves(self, ax: Axes | None = None, *, what: str = "loss") -> Axes:
        """Draw loss, memory and use of each rank over time, in the seconds of the time line.

        Of more than 8 ranks, the range and the median are drawn. A loss that is not finite is marked.

        Args:
            ax: Axes to draw one quantity on; None: those of a new figure with all of them, which a notebook shows.
            what: which quantity ``ax`` gets: ``loss``, ``memory``, ``device_memory``, ``cores`` or ``device_busy``.

        Returns:
            The first Axes; ``ax.figure.axes`` has the others, ``ax.figure.savefig()`` saves the figure.

        Raises:
            UsageError: ``ax`` or ``what`` is something else.

        Example:
            >>> run.recording.plot_curves()
        """
        return writers().plot_curves(self, ax, what)

    def to_perfetto(self, path: str | os.PathLike[str]) -> None:
        """Write a trace for https://ui.perfetto.dev (or chrome://tracing), which shows a million calls at once.

        A process for each rank, tracks for optimizer steps, phases and the calls of each group, the time that a call
        waited, the calls of one collective connected over ranks, and what was found as marks. The page reads the
        file in the browser; it is not sent anywhere.

        Args:
            path: of a file, which is replaced; it is compressed if it ends in ``.gz``.

        Raises:
            UsageError: no times are recorded, as in most logs; or ``path`` is not a path.
            CannotWrite: the disk is full, or the folder does not exist. What was there before stays.

        Example:
            >>> run.recording.to_perfetto("trace.json.gz")
        """
        writers().save_perfetto(self, path)

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Write one HTML file to share: findings, ranks, a picture of the time line, the time account, variables, stacks,
        executed lines and output. It has no scripts and loads nothing; it is light or dark as the reader's browser is.

        It holds local variables of the user's frames, the end of each rank's output and lines of source: read it before
        you send it to somebody (SECURITY.md).

        Args:
            path: of a file, which is replaced.

        Raises:
            UsageError: ``path`` is not a path.
            CannotWrite: the disk is full, or the folder does not exist. What was there before stays.

        Example:
            >>> ddpnb.load("hang.ddpnb").to_html("hang.html")
        """
        writers().save_html(self, path)

    @property
    def gaps(self) -> tuple[str, ...]:
        """What was not recorded, in sentences."""
        return tuple(dict.fromkeys(gap for _, record in sorted(self.ranks.items()) for gap in record.gaps))

    @property
    def has_all_events(self) -> bool:
        """Whether no events were dropped on any rank: only then can whole lists of them be compared."""
        return not any(record.events_forgotten for record in self.ranks.values())

    @property
    def last_progress_ns(self) -> int:
        """The time of the last recorded event of any rank."""
        latest = 0
        for record in self.ranks.values():
            for call in record.calls[-64:]:
                latest = max(latest, call.entered_ns, call.issued_ns, call.done_ns)
            for event in record.history[-8:]:
                latest = max(latest, event.began_ns, event.ended_ns)
            if record.ending is not None:
                latest = max(latest, record.ending.at_ns)
        return latest
