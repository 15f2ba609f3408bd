"""What formats find in files: facts, each about one rank or about the whole job.

A fact says only what its file says, and ``at`` in which line; two facts are equal wherever they stand. ``None`` and 0 stand for what it leaves open; ``together`` joins the facts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ddpnb.recording.calls import NO_SITE, UNNAMED, Call, CallState, Signature, Site
from ddpnb.recording.ending import Ending
from ddpnb.recording.names import one_line
from ddpnb.recording.report import LogLine
from ddpnb.recording.secrets import Secrets
from ddpnb.recording.stacks import Stack
from ddpnb.reports.times import NO_TIMES, Times
from ddpnb.texts import shortened


@dataclass(frozen=True, slots=True)
class Speaker:
    """The process that a fact is about, as far as the file names it: by its global rank, or by its process id."""

    rank: int | None = None
    pid: int = 0
    host: str = ""


NOBODY = Speaker()


_QUOTED = 140  # characters of a line that are shown
_SECRETS = Secrets()


@dataclass(frozen=True, slots=True)
class Origin:
    """What is known of a file beside its lines.

    Args:
        numbers: of each line in the file, from 1, where it is not its place.
        whole: it ends with the end of a line.
        excerpt: how it is seen that it is a part of what the ranks wrote.
        inferred: its name says who wrote it, in words that also name nodes.
        raw: its text, with all prefixes, and the number of the first line of that.
    """

    numbers: Sequence[int] = ()
    whole: bool = True
    excerpt: str = ""
    inferred: bool = False
    raw: tuple[str, int] = ("", 1)

    def quoted(self, path: str, line: int, words: str) -> LogLine:
        """A line by its place, with these of its words."""
        number = self.numbers[line] if self.numbers else line + 1
        masked = _SECRETS.mask(one_line(words[: 2 * _QUOTED]))
        return LogLine(path, number, shortened(masked.strip(), _QUOTED))


@dataclass(frozen=True, slots=True)
class GroupName:
    """A process group as a file names it.

    Args:
        name: torch's name of it (``"0"``, ``"3"``), the same on all ranks; ``""`` for the default group or where the file
            names none.
        label: its description (``"default_pg"``, ``"mesh_tp"``).
        rank: the speaker's rank *in this group*, where the file says it; -1: not known.
        ranks: the global ranks of its members, in their order; empty: not known.
    """

    name: str = ""
    label: str = ""
    rank: int = -1
    ranks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class WorldSize:
    """The number of ranks in the job."""

    size: int


@dataclass(frozen=True, slots=True)
class Identity:
    """Which process a rank is: connects lines that name a process id with those that name a rank."""

    speaker: Speaker  # with rank and pid


@dataclass(frozen=True, slots=True)
class Members:
    """The members of a group."""

    group: GroupName  # with its ranks


@dataclass(frozen=True, slots=True)
class CallSeen:
    """A call that a rank has made.

    Args:
        speaker: who made it.
        group: in which group.
        seq: its number among the group's collectives, from 1; 0: not known, or point-to-point.
        signature: its operation by ddpnb's name (``operations.operation``), the shapes and dtypes of what the rank
            contributes, its root where that is known; ``agreed`` is left empty. Where only a number of elements is
            known, that number is the shape.
        state: WAITING: the rank waits in it, or the time-out ended this wait; ISSUED: it was handed to the backend;
            COMPLETED.
        site: the user's line, if the file has stacks.
        peer: point-to-point only: the other rank, global.
        waited_s: how long it ran, as the file says.
        timeout_s: after which time it is given up.
        stack: of the call, outermost first.
    """

    speaker: Speaker
    group: GroupName
    seq: int = 0
    signature: Signature = field(default_factory=lambda: Signature(UNNAMED))
    state: CallState = CallState.WAITING
    site: Site = NO_SITE
    peer: int = -1
    waited_s: float = 0.0
    timeout_s: float = 0.0
    stack: Stack | None = None
    at: LogLine | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Calls:
    """The last calls of a rank, whole: those of a dump.

    Args:
        speaker: who made them.
        calls: in the order in which they began; of each group that occurs, ``group.ranks`` are its members.
        forgotten: how many earlier ones the dump does not hold.
        stack: of the call that the rank waits in, when it was made.
    """

    speaker: Speaker
    calls: tuple[Call, ...]
    forgotten: int = 0
    stack: Stack | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a rank is in a group: the numbers of the last collectives; -1: not said."""

    speaker: Speaker
    group: GroupName
    enqueued: int = -1
    started: int = -1
    completed: int = -1
    at: LogLine | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Ended:
    """How a rank's process ended, or the exception that it raised.

    Args:
        speaker: which process.
        ending: how.
        root: the file calls it the first failure.
        at: the line.
        continued: the process wrote more after it: it was handled.
        last: a traceback after which the process wrote nothing but what processes write while they end.
        clock_s: the time of day that a launcher gives, comparable with those of the same launcher; 0: none.
        table: a launcher lists it.
    """

    speaker: Speaker
    ending: Ending
    root: bool = False
    at: LogLine | None = field(default=None, compare=False, repr=False)
    continued: bool = False
    last: bool = field(default=False, compare=False)
    clock_s: float = field(default=0.0, compare=False)
    table: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class StacksSeen:
    """The stacks of a process at one moment; ``idle``: its main thread waited then (None: not said)."""

    speaker: Speaker
    stacks: tuple[Stack, ...]
    idle: bool | None = None


@dataclass(frozen=True, slots=True)
class CheckpointPassed:
    """A numbered line of a verbose script (``CHECKPOINT 9: ...``)."""

    speaker: Speaker
    number: int
    name: str = ""
    at_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Waiting:
    """A rank waits in start-up or for a key of the store, or it names ranks that did not come.

    Args:
        speaker: who waits.
        function: ``"init_process_group"``, ``"new_group"``, ``"monitored_barrier"``, or a call's name; ``"call"``: one
            that timed out or failed, and that the file does not name; ``"store"``: it lost the connection to the store.
        missing: the global ranks that it names as missing.
        timeout_s: after which time it gave up.
    """

    speaker: Speaker
    function: str
    missing: tuple[int, ...] = ()
    timeout_s: float = 0.0
    at: LogLine | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Message:
    """An error text that ``messages`` understands, of a rank or of nobody known."""

    speaker: Speaker
    text: str
    at: LogLine | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Restarted:
    """A launcher has started all ranks again: what is before this line of its log is of an earlier attempt."""

    at: LogLine | None = None


@dataclass(frozen=True, slots=True)
class EndedOutside:
    """The job was ended by nobody of its ranks: a time limit, Ctrl-C, a scheduler.

    Args:
        who: a sentence.
        certain: else a launcher does the same after the failure of a rank.
        at: the first line that says it.
    """

    who: str
    certain: bool = True
    at: LogLine | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Unknown:
    """What cannot be known from a file, with what to collect next: whole sentences for the reader."""

    text: str


Fact = (
    WorldSize
    | Identity
    | Members
    | CallSeen
    | Calls
    | Progress
    | Ended
    | StacksSeen
    | CheckpointPassed
    | Waiting
    | Message
    | Restarted
    | EndedOutside
    | Unknown
)


@dataclass(frozen=True, slots=True)
class Extent:
    """What a file is of that which the ranks wrote.

    Args:
        ranks: those that it names, whatever it says of them.
        excerpt: why it is a part, so that the absence of a rank says nothing; empty: it is not known to be one.
        cut: it ends within a line.
        inferred: its name alone says which rank wrote it, in words that also name nodes (``worker-1.log``).
        times: when its lines were written.
    """

    ranks: frozenset[int] = frozenset()
    excerpt: str = ""
    cut: bool = False
    inferred: bool = False
    times: Times = field(default=NO_TIMES, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Found:
    """The facts of one file, and the format that found them."""

    path: str
    format: str
    facts: tuple[Fact, ...]
    extent: Extent = Extent()


def speaker_of(fact: Fact) -> Speaker:
    """The process that a fact is about; nobody where it is about the whole job."""
    return getattr(fact, "speaker", NOBODY)


def group_of(fact: Fact) -> GroupName | None:
    return getattr(fact, "group", None)
