"""Findings and the diagnosis, and their public JSON."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ddpnb.recording.calls import NO_SITE, Call, Site
from ddpnb.recording.codec import WHOLE, hints_of, written
from ddpnb.recording.files import write_whole
from ddpnb.recording.parting import Parting, quoted_lines
from ddpnb.recording.writers import writers
from ddpnb.texts import relative

Severity = Literal["error", "warning", "note"]
Certainty = Literal["proven", "timed", "likely"]
Outcome = Literal["ok", "hang", "crash", "divergence", "interrupted"]

_SEVERITY_OF_TYPE: Any = ""
_QUOTED, _AROUND = 64, 2  # places of which lines are kept, and lines before and after each
_STANDARD = re.compile(r"^<frozen |/lib(?:64)?/python3\.\d+/(?!site-packages/|dist-packages/)")


@dataclass(frozen=True, slots=True)
class FindingType:
    """A kind of finding. Each is declared once, beside its rule; two are equal if their codes are.

    Example:
        >>> COLLECTIVE_MISSING = FindingType("DDP301", "collective-missing")
    """

    code: str
    name: str = field(compare=False)
    severity: Severity = field(default="error", compare=False)
    # Codes of findings that follow from this one and are left out beside it.
    supersedes: tuple[str, ...] = field(default=(), compare=False)
    # Only found where ranks were blocked for long enough, so the diagnosis is settled at once.
    after_patience: bool = field(default=False, compare=False)
    # The calls of one collective differ: settled as soon as the ranks are blocked in them.
    mismatch: bool = field(default=False, compare=False)
    # The ranks set up their groups differently: settled when they are blocked in that for long enough.
    group_mismatch: bool = field(default=False, compare=False)
    # Each culprit is in a call of its own, not in the finding's collective.
    separate_calls: bool = field(default=False, compare=False)
    # The culprits are in a call that the others do not make.
    extra_call: bool = field(default=False, compare=False)
    # The ranks took different ways to their calls: the lines that they executed show where.
    ways_part: bool = field(default=False, compare=False)
    # Adds nothing where a failure names the same lines.
    once_per_line: bool = field(default=False, compare=False)

    @property
    def page(self) -> str:
        """The file of its page in ``rules/catalogue/pages``."""
        return f"{self.code}.md"


@dataclass(frozen=True, slots=True)
class Hint:
    """A possible cause that was inferred from the source text: a place, and what it may have to do with the finding."""

    file: str
    line: int
    reason: str

    @property
    def site(self) -> Site:
        return Site(self.file, self.line, "?")

    def __str__(self) -> str:
        return f"{self.site}: {self.reason} (inferred from the source)"


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem (or note): the ranks at fault, where, and what to change.

    ``where`` gives, for culprits and for waiting ranks, the innermost line of the user's code: only places that
    were observed (call sites, stack frames, construction sites), never a line inferred from source text. Where
    ranks differ and no recorded fact tells which of them is at fault, ``culprits`` is empty and ``sides`` lists the
    groups of ranks.

    ``certainty``: ``proven`` follows from what was recorded; ``timed``: ranks made no progress for ``patience``;
    ``likely``: the code or a culprit had to be inferred, for example from source text or from names.

    ``parting``: where the ways of the ranks part, if that explains it: the decision, and the way of each side.

    ``moments``: (rank, ns): when each rank was at the point where the finding shows. ``withdrawn``: a warning whose ranks have
    continued. ``source``: by file, numbers and texts of its lines around the places: see ``quoted``. ``blocked``: the ranks that wait in
    a call at their place. Not part of its JSON.
    """

    type: FindingType
    summary: str
    culprits: tuple[int, ...] = ()
    waiting: tuple[int, ...] = ()
    collective: Call | None = None
    where: tuple[tuple[int, Site], ...] = ()
    evidence: tuple[str, ...] = ()
    remedy: str = ""
    severity: Severity = _SEVERITY_OF_TYPE
    tensors: tuple[str, ...] = ()
    sides: tuple[tuple[int, ...], ...] = ()
    certainty: Certainty = "proven"
    hint: Hint | None = None
    parting: Parting | None = None
    moments: tuple[tuple[int, int], ...] = ()
    withdrawn: bool = False
    source: tuple[tuple[str, tuple[tuple[int, str], ...]], ...] = field(default=(), compare=False, repr=False)
    blocked: frozenset[int] = field(default=frozenset(), compare=False)

    def __post_init__(self) -> None:
        if not self.severity:
            object.__setattr__(self, "severity", self.type.severity)
        # Lines of the standard library say nothing of the program: a thread's start, a module that is being imported.
        places = tuple(place for place in self.where if place[1] != NO_SITE and not _STANDARD.search(place[1].file))
        if len(places) < len(self.where):
            object.__setattr__(self, "where", places)

    @property
    def code(self) -> str:
        """The code of its type, such as ``"DDP301"``."""
        return self.type.code

    @property
    def name(self) -> str:
        """The name of its type, such as ``"collective-missing"``."""
        return self.type.name

    @property
    def unproven(self) -> bool:
        """Whether it is a warning since ranks may still continue: only how long they have been blocked supports it."""
        waited = self.certainty == "timed" or (self.certainty == "likely" and self.type.after_patience)
        return self.severity == "warning" and waited

    @property
    def concerned(self) -> frozenset[int]:
        """All ranks that the finding names."""
        return frozenset((*self.culprits, *self.waiting, *(rank for side in self.sides for rank in side)))

    def quoted(self, sources: Mapping[str, str], edited: Iterable[str] = ()) -> Finding:
        """With the lines around its places, so that they can be shown without the Recording.

        Args:
            sources: the text of each file, as ``Recording.sources``.
            edited: files of which that is not what the ranks ran.
        """
        sites = [site for _, site in self.where[:_QUOTED]] + ([self.hint.site] if self.hint is not None else [])
        wanted: dict[str, set[int]] = {}
        for site in sites:
            wanted.setdefault(site.file, set()).update(range(site.line - _AROUND, site.line + _AROUND + 1))
        known = {file: sources[file].split("\n") for file in wanted if file in sources and file not in edited}
        found = ((file, quoted_lines(lines, wanted[file])) for file, lines in known.items())
        return replace(self, source=tuple((file, lines) for file, lines in found if lines))

    def to_json(self) -> dict[str, Any]:
        call = self.collective
        return {
            "code": self.code,
            "name": self.name,
            "severity": self.severity,
            "certainty": self.certainty,
            "summary": self.summary,
            "culprits": list(self.culprits),
            "sides": [list(side) for side in self.sides],
            "waiting": list(self.waiting),
            "collective": None
            if call is None
            else {
                "op": call.op,
                "group": call.group.title,
                **({"mesh": {"axes": call.group.axes, "at": call.group.at}} if call.group.axes else {}),
                "seq": call.seq,
                "shapes": [list(shape) for shape in call.signature.shapes],
                "dtypes": list(call.signature.dtypes),
            },
            "where": [
                {"rank": rank, "file": site.file, "line": site.line, "function": site.function}
                for rank, site in self.where
            ],
            "hint": written(self.hint),
            "parting": None if self.parting is None else self.parting.to_json(),
            "tensors": list(self.tensors),
            "evidence": list(self.evidence),
            "remedy": self.remedy,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Finding:
        """What ``to_json()`` has described, without the collective.

        Raises:
            KeyError, TypeError, ValueError: it is not a finding.
        """
        parting = data.get("parting")
        given = {**data, "where": [(one["rank"], one) for one in data["where"]]}
        hints = hints_of(cls)
        values: dict[str, Any] = {name: WHOLE.read(hints[name], given[name]) for name in _IN_JSON}
        kind = FindingType(str(data["code"]), str(data["name"]))
        return cls(kind, **values, parting=None if parting is None else Parting.from_json(parting))


#: the fields that are in JSON as they are
_IN_JSON = (
    "summary", "culprits", "waiting", "where", "evidence", "remedy", "severity", "tensors", "sides", "certainty", "hint",
)  # fmt: skip


@dataclass(frozen=True, slots=True, repr=False)
class Diagnosis:
    """The findings, root cause first. It shows itself as text in a terminal and as HTML in a notebook.

    ``outcome``: ``ok``, ``hang``, ``crash``, ``divergence`` or ``interrupted``. ``settled``: waiting longer does
    not change it. ``exit_codes``: rank -> exit status, None if it has not ended. ``timing``: seconds. ``notes``: what
    cannot be known, with what to collect next. ``reported``: it is that of logs and dumps. ``order``: the
    events that the logs show, with file and line. ``answer``: a paragraph to post as an answer where the logs were posted.
    ``outside``: who ended the job, where no rank did.

    Example:
        >>> [finding.code for finding in run.diagnosis.findings]
        ['DDP301']
    """

    outcome: Outcome = "ok"
    findings: tuple[Finding, ...] = ()
    settled: bool = False
    world_size: int = 0
    exit_codes: dict[int, int | None] = field(default_factory=dict[int, "int | None"])
    timing: dict[str, float] = field(default_factory=dict[str, float])
    notes: tuple[str, ...] = ()
    reported: bool = False
    order: tuple[str, ...] = ()
    answer: str = ""
    outside: str = ""

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings of severity ``error``."""
        return tuple(finding for finding in self.findings if finding.severity == "error")

    def __str__(self) -> str:
        return str(writers().text(self))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return str(writers().html(self))

    def to_json(self) -> dict[str, Any]:
        """The diagnosis as JSON, schema 2. Files below the working directory are named from there.

        Returns:
            Strings, numbers, lists and dictionaries: add keys, never rename one.

        Example:
            >>> run.diagnosis.to_json()["outcome"]
            'hang'
        """
        shown = [
            replace(
                finding,
                summary=relative(finding.summary),
                hint=None if (hint := finding.hint) is None else replace(hint, file=relative(hint.file)),
                parting=None if finding.parting is None else finding.parting.mapped(relative),
                evidence=tuple(map(relative, finding.evidence)),
                where=tuple((rank, replace(site, file=relative(site.file))) for rank, site in finding.where),
            )
            for finding in self.findings
        ]
        return {
            "schema": 2,
            "outcome": self.outcome,
            "settled": self.settled,
            "world_size": self.world_size,
            "exit_codes": {str(rank): code for rank, code in sorted(self.exit_codes.items())},
            "findings": [finding.to_json() for finding in shown],
            "timing": {name: round(value, 4) for name, value in self.timing.items()},
            "notes": list(self.notes),
            **({"order": list(self.order), "answer": self.answer} if self.reported else {}),
        }

    def to_markdown(self, number: int | None = None) -> str:
        """The findings as Markdown, for an issue or a chat.

        Text that looks like a secret is masked; names of machines and users, homes and addresses get placeholders. Paths below
        the working directory are named from there.

        Args:
            number: of the finding to report, from 0; None: all findings.

        Returns:
            Markdown without HTML.

        Example:
            >>> print(run.diagnosis.to_markdown())
            **ddpnb: hang** on 4 ranks
        """
        return str(writers().markdown(self, None if number is None else self.findings[number : number + 1]))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write ``to_json()`` to a file, all at once: a reader never sees half of it.

        Args:
            path: a file that does not exist yet, or is replaced.

        Raises:
            CannotWrite: the disk is full, or there is no such folder.

        Example:
            >>> run.diagnosis.save("diagnosis.json")
        """
        write_whole(path, json.dumps(self.to_json(), indent=1) + "\n")
