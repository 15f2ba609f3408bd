"""The diagnosis with its displays: HTML in a notebook, text in a terminal, JSON in a file."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import Any

from ddpnb import arguments
from ddpnb.diagnosis import diagnose as analysis
from ddpnb.errors import UsageError
from ddpnb.files import write_whole
from ddpnb.model.findings import Diagnosis
from ddpnb.model.recording import Recording
from ddpnb.render import card, markup
from ddpnb.render.text import relative


class Verdict(Diagnosis):
    """A diagnosis that can display itself."""

    __slots__ = ()

    @classmethod
    def of(cls, found: Diagnosis, **changes: Any) -> Verdict:
        fields = {field.name: getattr(found, field.name) for field in dataclasses.fields(Diagnosis)}
        return cls(**(fields | changes))

    def __str__(self) -> str:
        return card.text(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return markup.standalone(card.html(self), "diagnosis")

    def to_json(self) -> dict[str, Any]:
        """The verdict file's content; files below the working directory are named from there."""
        shown = tuple(
            dataclasses.replace(
                finding,
                summary=relative(finding.summary),
                evidence=tuple(map(relative, finding.evidence)),
                where=tuple(
                    (rank, dataclasses.replace(site, file=relative(site.file))) for rank, site in finding.where
                ),
                hint=None if (hint := finding.hint) is None else dataclasses.replace(hint, file=relative(hint.file)),
            )
            for finding in self.findings
        )
        return Diagnosis.to_json(dataclasses.replace(self, findings=shown))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the verdict file, all at once: a reader never sees half of it.

        Raises:
            CannotWrite: the disk is full, or there is no such folder.
        """
        write_whole(path, json.dumps(self.to_json(), indent=1) + "\n")


def diagnose(recording: Recording, patience: float = analysis.PATIENCE) -> Verdict:
    """Diagnose a Recording: see ``ddpnb.diagnosis.diagnose``.

    Raises:
        UsageError: it is no Recording, or that is no number of seconds.
    """
    if not isinstance(recording, Recording):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError(
            f"diagnose() takes a Recording, not {arguments.short(recording)}.", "world.snapshot() takes one."
        )
    if patience != float("inf"):
        arguments.seconds("patience", patience)
    return Verdict.of(analysis.diagnose(recording, patience))
