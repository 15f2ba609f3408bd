"""What formats find in files: facts, each about one rank or about the whole job.

A fact says only what its file says. ``None`` and 0 stand for what it leaves open; ``together`` joins the facts.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ddpnb.recording.calls import NO_SITE, UNNAMED, Call, CallState, Signature, Site
from ddpnb.recording.ending import Ending
from ddpnb.recording.stacks import Stack


@dataclass(frozen=True, slots=True)
class Speaker:
    """The process that a fact is about, as far as the file names it: by its global rank, or by its process id."""

    rank: int | None = None
    pid: int = 0
    host: str = ""


NOBODY = Speaker()


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


@dataclass(frozen=True, slots=True)
class Ended:
    """How a rank's process ended, or the exception that it raised. ``root``: the file calls it the first failure."""

    speaker: Speaker
    ending: Ending
    root: bool = False


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


@dataclass(frozen=True, slots=True)
class Message:
    """An error text that ``messages`` understands, of a rank or of nobody known."""

    speaker: Speaker
    text: str


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
    | Unknown
)


@dataclass(frozen=True, slots=True)
class Found:
    """The facts of one file, and the format that found them."""

    path: str
    format: str
    facts: tuple[Fact, ...]


def speaker_of(fact: Fact) -> Speaker:
    """The process that a fact is about; nobody where it is about the whole job."""
    return getattr(fact, "speaker", NOBODY)


def group_of(fact: Fact) -> GroupName | None:
    return getattr(fact, "group", None)
