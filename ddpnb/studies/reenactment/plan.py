"""The plan of a re-enactment: which live rank stands for which ranks, and what it calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ddpnb.recording.calls import NO_SITE, Group, Site
from ddpnb.recording.findings import Diagnosis, Finding
from ddpnb.studies.reenactment.behaviour import How
from ddpnb.studies.reenactment.tensors import Small

NEW_GROUP = "new_group"


def root(diagnosis: Diagnosis) -> Finding | None:
    """The root cause: the first error, or else the first finding."""
    return next(iter((*diagnosis.errors, *diagnosis.findings)), None)


@dataclass(frozen=True, slots=True)
class LiveGroup:
    """A process group of the re-enactment: its members are live ranks."""

    name: str  # of its variable; empty: the default group
    ranks: tuple[int, ...]
    group: Group  # in the recording


@dataclass(frozen=True, slots=True)
class Step:
    """A call of a live rank, or a ``new_group``.

    Args:
        given: what the call is given; None: a ``new_group`` of ``ranks``.
        group: the place of its group among those of the plan; -1: there is none.
        seq: its number in that group; 0: point-to-point.
        mode: ``call``: it waits; ``issue``: it waits later, or never; ``drop``: the Work is discarded.
        late: whether it begins only after the Work of its send was discarded.
        peer: a live rank.
        root: a live rank.
        site: in the recording.
        title: of the recorded call.
        kind: steps that are alike may share a line.
    """

    given: Small | None
    group: int = 0
    seq: int = 0
    mode: str = "call"
    late: bool = False  # a receive that begins after the Work of its send was discarded
    peer: int = -1
    tag: int = 0
    root: int | None = None
    ranks: tuple[int, ...] = ()
    site: Site = NO_SITE
    title: str = ""
    kind: tuple[str, int, str] = ("", 0, "")


@dataclass(frozen=True, slots=True)
class Part:
    """What one live rank does.

    Args:
        rank: the live rank.
        original: the rank whose calls it makes.
        stands_for: the ranks that behave like it.
        steps: its calls.
        how: what it does after them. ``blocked``: the last step does not end.
        absent: it never calls init_process_group.
        waits_in: the place of the step that it waits in last, where it issued others after it; None: in none.
    """

    rank: int
    original: int
    stands_for: tuple[int, ...]
    steps: tuple[Step, ...] = ()
    how: How = "unknown"
    waits_in: int | None = None
    code: int = 0
    message: str = ""
    absent: bool = False


@dataclass(frozen=True)
class Plan:
    """What is re-enacted, on how many ranks.

    Example:
        >>> plan = plan_of(ddpnb.load("hang.ddpnb"))
        >>> plan.size, plan.expected.code
        (4, 'DDP301')
    """

    parts: tuple[Part, ...]
    groups: tuple[LiveGroup, ...]
    world_size: int
    diagnosis: Diagnosis
    numbers: Mapping[str, Mapping[int, int]] = field(default_factory=dict[str, "Mapping[int, int]"])
    ordered: bool = False  # the two calls that do not match follow each other in the source: no branch decides
    notes: tuple[str, ...] = ()  # what stands for something else
    left_out: tuple[str, ...] = ()  # what cannot be re-enacted

    @property
    def size(self) -> int:
        """The number of live ranks."""
        return len(self.parts)

    @property
    def completes(self) -> bool:
        """Whether all ranks end after their calls: none waits for another one."""
        return all(
            part.how == "left" and not part.absent and all(step.mode == "call" for step in part.steps)
            for part in self.parts
        )

    @property
    def expected(self) -> Finding | None:
        """The root cause that the diagnosis of the recording names."""
        return root(self.diagnosis)
