"""What a launcher can ask of a rank on its control channel: a class for each verb, and one for its answer.

Both sides read what the other one sends with ``exactly``: what is not declared here, or has another type, is an error
that names the verb. Standard library only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, ClassVar, Generic, TypeVar, dataclass_transform, get_args

from ddpnb.recording.events.base import Facts, LongText, record
from ddpnb.recording.names import one_line


@dataclass_transform(frozen_default=True, kw_only_default=True)
class _Message(Facts):
    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        record(cls)


class Done(_Message):
    """It was done; ``error``: why not, as a sentence."""

    error: str = ""


A = TypeVar("A", bound=Done)
_VERBS: dict[str, type[Request[Any]]] = {}


class Request(_Message, Generic[A]):
    """A request, whose answer is an ``A``."""

    VERB: ClassVar[str]
    ANSWER: ClassVar[type[Done]]

    def __init_subclass__(cls, verb: bool = True) -> None:
        super().__init_subclass__()
        for base in vars(cls).get("__orig_bases__", ()):
            (cls.ANSWER,) = get_args(base)
        cls.VERB = cls.__name__.lower()
        if verb:
            _VERBS[cls.VERB] = cls


# -- where a rank is


class Looked(Done):
    """``machine``: where ``pid`` and ``holders``, of the file lock it waits for, mean what they say; the rest: ``main_wait.Wait``.

    ``stacks`` and ``unseen`` are decoded by ``model.stacks``. Of ranks without a recorder: ``switches`` of the main thread,
    and ``age_s`` of the answer.
    """

    pid: int = 0
    machine: str = ""
    stacks: Any = None
    unseen: Any = None
    waits_on: str = ""
    holders: tuple[int, ...] = ()
    received: int = -1
    wakes_at: float | None = None
    switches: int | None = None
    age_s: float = 0.0


class Snapshot(Request[Looked]):
    """Stacks; ``locals``: with variables, ``values``: and what tells two tensors of one shape apart."""

    locals: bool = True
    values: bool = False


class Evaluated(Done):
    """``text``: its repr; ``value``: itself where it is plain; ``where``: the frame."""

    text: LongText = LongText("")
    value: Any = None
    where: LongText = LongText("")


class Evaluate(Request[Evaluated]):
    """An expression in a user's frame, counted from the innermost."""

    expression: LongText = LongText("")
    frame: int = 0
    timeout: float = 10.0


class Opened(Done):
    """Labels and texts of the parts, and how many more there are."""

    inside: tuple[tuple[LongText, ...], ...] = ()
    more: int = 0


class Open(Request[Opened]):
    """What is inside a variable of this function."""

    file: LongText = LongText("")
    function: str = ""
    path: LongText = LongText("")


class Names(Done):
    """Names."""

    names: tuple[str, ...] = ()


class Completions(Request[Names]):
    """Variables of cells, or attributes of one of them, that begin so."""

    owner: str = ""
    prefix: str = ""


# -- holds and faults


class GateState(Done):
    """The held calls, the armed holds, and whether the rank stops before each call."""

    held: Any = ()
    holds: tuple[str, ...] = ()
    pause: bool = False
    troubles: tuple[str, ...] = ()


class Gate(Request[GateState]):
    """The state of holds."""


class OfARun(Request[Done], verb=False):
    """What a rank applies when this run begins on it; 0: at once."""

    run: int = 0


class Hold(OfARun):
    """Suspend time-outs, and arm this hold (JSON of ``model.holds.Hold``) if there is one."""

    hold: Any = None
    keep: bool = False


class Unhold(OfARun):
    """Disarm this hold; None: all of them."""

    hold: Any = None


class Hurry(Request[Done]):
    """Restore time-outs."""


class Nearest(Done):
    """Where a place is.

    ``file``: its path; empty where nothing of that name is loaded. ``has_code``: at this line. ``near``: if not, the nearest
    lines that have. ``library``: it is no file of the user's.
    """

    file: LongText = LongText("")
    has_code: bool = True
    near: tuple[int, ...] = ()
    library: bool = False


class Locate(Request[Nearest]):
    """Which loaded file a place is in, and whether its line has code."""

    line: LongText = LongText("")


class Stepped(Done):
    """``held``: the thread has made its steps over lines, and is held again. ``free``: none was held, and nothing was done."""

    held: bool = False
    free: bool = False


class Step(Request[Stepped]):
    """Let a held rank make so many calls; or, if ``how`` is another one of ``holds.HOW``, so many steps over lines.

    ``to``: until it is before this line. The answer to a step over lines waits a moment for its end.
    """

    count: int = 1
    how: str = "collective"
    to: LongText = LongText("")


class Resuming(OfARun):
    """All ranks are about to be resumed."""


class Resume(OfARun):
    """Let a held rank continue."""


class Inject(OfARun):
    """Arm this fault (JSON of ``model.faults.Fault``)."""

    fault: Any = None
    keep: bool = False


class Heal(OfARun):
    """Disarm these faults; None: all."""

    faults: Any = None


class FaultState(_Message):
    """An armed fault, how often it was triggered, and why it could not be."""

    fault: Any = None
    triggered: int = 0
    troubles: tuple[str, ...] = ()
    keep: bool = False


class DebugpyState(Done):
    """The port on which debugpy listens, on the loopback address; 0: it is being started."""

    port: int = 0


class Debugpy(Request[DebugpyState]):
    """Start debugpy in this rank, if it does not listen yet."""


class ArmedFaults(Done):
    """All of them."""

    faults: tuple[FaultState, ...] = ()


class Faults(Request[ArmedFaults]):
    """The armed faults."""


# -- release


class Releasing(Request[Done]):
    """Issue no more calls; ``why``: text of the exception."""

    why: str = ""


class Interrupt(Request[Done]):
    """Raise the exception in the main thread."""


class Release(Request[Done]):
    """Shut these connections down, ``[fd, own address, other address]``; ``both_ways``: for writes too."""

    connections: Any = ()
    both_ways: bool = False


class Released(Request[Done]):
    """The release is over: groups are closed."""


class Unreleased(Request[Done]):
    """The release is over: groups can be used as before."""


class Cut(Request[Done]):
    """Shut down connections of a group that is about to be destroyed."""

    connections: Any = ()


class GroupCounts(_Message):
    """How far a rank has come in one group.

    ``returned``: numbers of calls that were given back; ``messages``: operation, peer (-1: any), tag, how many.
    """

    key: str = ""
    ranks: tuple[int, ...] = ()
    calls: int = 0
    returned: tuple[int, ...] = ()
    messages: tuple[tuple[str, int, int, int], ...] = ()


class Groups(Done):
    """The default group of a rank; ``size`` 0: there is none; ``backend`` empty: torch's choice.

    ``counts``: how far each group has come; ``torn``: an exception ended a backward, or calls are not recorded. ``users``: what
    stays with the present groups when there is a new one, as text; ``models``: how many wrapped models would use that.
    """

    size: int = 0
    rank: int = -1
    backend: str = ""
    timeout_s: float | None = None
    closed: bool = False
    torn: bool = False
    counts: tuple[GroupCounts, ...] = ()
    users: tuple[str, ...] = ()
    models: int = 0


class Group(Request[Groups]):
    """The default group, what uses it, and how far each group has come."""


# -- models and tensors


class Model(_Message):
    """The digests of a model: rows of name, digest and norm; ``modules``: of one forward, rows of name, class and digest."""

    model: int = 0
    hash: str = ""
    step: int = 0
    forwards: int = 0
    buffers: tuple[str, ...] = ()
    tensors: Any = ()
    turn: int = 0
    done: bool = False
    modules: Any = ()


class Models(Done):
    """Those that the replica watch follows."""

    models: tuple[Model, ...] = ()


class Compare(Request[Models]):
    """The exact digests of all models."""


class Traced(Done):
    """By number."""

    models: Mapping[str, Model] = field(default_factory=dict[str, Model])


class Traces(Request[Traced]):
    """What was looked at since ``Trace``."""


class Trace(Request[Done]):
    """Look at this forward of each model, by number."""

    turns: Mapping[str, int] = field(default_factory=dict[str, int])
    modules: bool = False


class Elements(Done):
    """As float32."""

    values: bytes = b""


class Values(Request[Elements]):
    """The first elements of a tensor of a model."""

    model: int = 0
    tensor: str = ""


class OfTensor(Request[A], verb=False):
    name: str = ""
    frame: int | None = None
    timeout: float = 10.0


class TensorRead(Done):
    """``numbers`` are decoded by ``model.tensors``."""

    numbers: Mapping[str, Any] = field(default_factory=dict[str, Any])
    digests: tuple[str, ...] = ()


class Tensor(OfTensor[TensorRead]):
    """A tensor in numbers."""


class Counts(Done):
    """In each bin."""

    counts: tuple[int, ...] = ()


class Histogram(OfTensor[Counts]):
    """Its elements between two values."""

    low: float = 0.0
    high: float = 0.0


class Piece(_Message):
    """Elements; ``code``: of ``array``."""

    code: str = ""
    values: bytes = b""


class PiecesRead(Done):
    """In the order in which they were asked for."""

    pieces: tuple[Piece, ...] = ()


class Pieces(OfTensor[PiecesRead]):
    """The elements of these pieces of it."""

    numbers: tuple[int, ...] = ()


class Tensors(Request[Names]):
    """The names of tensors in a frame, and of the followed models."""

    frame: int | None = None


class Clock(Request[Done]):
    """How far the clock of the launcher's host is ahead."""

    ahead_ns: int = 0


# -- on the wire


def message(request: Request[Any]) -> dict[str, Any]:
    """A request as JSON."""
    return {"verb": request.VERB, "facts": request.facts()}


def requested(message: Mapping[str, Any]) -> Request[Any]:
    """The request in a message.

    Raises:
        ValueError: it is none.
    """
    name = message.get("verb")
    kind = _VERBS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise ValueError(f"no such verb: {one_line(str(name)[:80])}")
    return _exactly(kind, message.get("facts"), f"the request {kind.VERB}")


def reply(answer: Done) -> dict[str, Any]:
    """An answer as JSON, but for what ``encoding.encodable`` replaces."""
    return {"facts": answer.facts()}


def answered(request: Request[A], message: Mapping[str, Any]) -> A:
    """The answer in a message; its ``error`` says so where it is none."""
    kind: Any = type(request).ANSWER
    try:
        return _exactly(kind, message.get("facts"), f"the answer to {request.VERB}")
    except ValueError as error:
        return kind(error=one_line(str(error)))


def _exactly(kind: type[Any], facts: Any, what: str) -> Any:
    try:
        return kind.exactly(facts)
    except ValueError as error:
        raise ValueError(f"{what} is invalid ({error}): does the rank use another version of ddpnb?") from None
