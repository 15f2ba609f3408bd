"""How one rank left the way of the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ddpnb.model.calls import Site

Kind = Literal["jump", "branch", "loop", "lines"]


@dataclass(frozen=True, slots=True)
class Departure:
    """How one rank left the way of the others.

    ``jump``: it alone ran the ``continue``, ``break``, ``return``, ``raise`` or handler at ``site``; ``branch``, ``loop``: it
    ran the header at ``site``, but then not ``missed`` in its body, or it alone ran ``after``, behind the loop; ``lines``: it
    alone ran ``site``, and no more is known.
    ``alone``: the lines that it alone ran in the part of the run that begins ``since`` there, in their order, for ``lines`` from
    ``site`` on; for a ``loop`` the rarest line that it alone ran after the loop began. ``header``: of ``lines`` the statement around
    the first of them which the others ran, and then not that line; ``left``: or the jump with which they left. ``inside``: what else it left
    out, such as in the generator that a loop reads: (a header that it ran, the line behind it that it did not run).
    """

    rank: int
    kind: Kind
    site: Site
    word: str = ""
    missed: Site | None = None
    after: Site | None = None
    alone: tuple[Site, ...] = ()
    since: str = ""
    header: Site | None = None
    left: Site | None = None
    inside: tuple[tuple[Site, Site], ...] = ()

    @property
    def last(self) -> Site:
        """The line that shows it."""
        return self.after or self.site

    @property
    def further(self) -> tuple[Site, ...]:
        """Other lines that explain it: what changed a loop before it ended, where lines that the rank alone ran led to."""
        around = (self.header,) if self.header is not None else ()
        inside = tuple(header for header, _ in self.inside)
        return around + inside + {"loop": self.alone, "lines": self.alone[-1:]}.get(self.kind, ())

    @property
    def skips(self) -> bool:
        """Whether it went past a line of the others, and did not just leave a loop."""
        return self.kind == "branch" or (self.kind == "jump" and self.word != "break")

    @property
    def leaves_loop(self) -> bool:
        """Whether it left a loop by its header or a ``break``."""
        return self.kind == "loop" or self.word == "break"
