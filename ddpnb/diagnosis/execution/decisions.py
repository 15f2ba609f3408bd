"""The statements that decided which way a rank took: it ran their headers, and then not the lines of the others."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise, takewhile

from ddpnb.diagnosis.execution.departure import Departure
from ddpnb.diagnosis.execution.parts import Executed, Place, place
from ddpnb.model.calls import Site
from ddpnb.source.ways import decided_against, jump_at, loop_before

_MOST_INSIDE = 3


def jump_in(sources: Mapping[str, str], site: Site) -> str:
    """How the statement at a line leaves the usual way, as ``jump_at`` says it."""
    return jump_at(sources.get(site.file, ""), site.line)


def untaken(
    sources: Mapping[str, str], mine: Executed, theirs: Sequence[Executed], path: Sequence[Site]
) -> Departure | None:
    """The first statement that decided against a line of a path which the rank did not run."""
    order = {at: number for number, at in enumerate(mine.lines)}
    found = [way for site in path if place(site) not in mine.lines for way in _decided(sources, mine, theirs, site)]
    return min(found, key=lambda way: order[place(way.site)], default=None)


def not_entered(mine: Executed, path: Sequence[Site], stands: Collection[Place]) -> Departure | None:
    """The line of a path that the rank ran without entering the function which others entered there.

    An ``and`` or a conditional expression decides within one line.

    Args:
        mine: what the rank executed.
        path: the lines by which others came to where they are, outermost first.
        stands: where the rank is now: it may still enter functions there.
    """
    entered = {(site.file, site.function) for site in mine.lines.values()}
    for caller, callee in pairwise(path):
        if (
            place(caller) in mine.lines
            and place(caller) not in stands
            and (callee.file, callee.function) not in entered
        ):
            return Departure(-1, "branch", caller, missed=callee)
    return None


def left_out(sources: Mapping[str, str], mine: Executed, theirs: Sequence[Executed]) -> Iterator[Departure]:
    """The statements that decided against lines which all others ran in this part, and that it or they never left out."""
    missed = (
        site
        for at, site in theirs[0].lines.items()
        if at not in mine.lines
        and all(at in other.lines for other in theirs)
        and (at in mine.before or not any(at in other.before for other in theirs))
    )
    return (way for site in missed for way in _decided(sources, mine, theirs, site))


def inside(
    sources: Mapping[str, str], mine: Executed, theirs: Sequence[Executed], header: Site
) -> tuple[tuple[Site, Site], ...]:
    """Headers that ran in functions which ``header`` calls, without the lines that all others then ran; outermost first."""
    if place(header) not in mine.lines:
        return ()
    later = list(mine.lines.values())[list(mine.lines).index(place(header)) + 1 :]
    own = (header.file, header.function)
    called = list(takewhile(lambda site: (site.file, site.function) != own, later))
    missed = [at for at in theirs[0].lines.values() if place(at) not in mine.lines and at.function != header.function]
    first: dict[Site, Site] = {}
    for site in missed:
        if all(place(site) in other.lines for other in theirs):
            ways = (way.site for way in _decided(sources, mine, theirs, site) if way.site in called)
            first.setdefault(next(ways, header), site)
    return tuple((site, first[site]) for site in called if site in first)[:_MOST_INSIDE]


def kept_out(
    sources: Mapping[str, str], mine: Executed, theirs: Sequence[Executed], entry: Site
) -> tuple[Site | None, Site | None]:
    """What kept all others from a line that the rank alone ran: (the header around it that they ran, the jump before it)."""
    first, own = theirs[0], (entry.file, entry.function)
    headers = (way.site for way in _decided(sources, first, [mine], entry))
    other = (site for at, site in first.lines.items() if at not in mine.lines and (site.file, site.function) == own)
    jumps = (site for site in other if jump_in(sources, site) not in ("", "except"))

    def of_all(sites: Iterable[Site]) -> Site | None:
        return next((site for site in sites if all(place(site) in one.lines for one in theirs)), None)

    return of_all(headers), of_all(jumps)


def _decided(
    sources: Mapping[str, str], mine: Executed, theirs: Sequence[Executed], missed: Site
) -> Iterator[Departure]:
    order = {line: number for number, (file, line) in enumerate(mine.lines) if file == missed.file}
    for found in decided_against(sources.get(missed.file, ""), missed.line, order):
        header = Site(missed.file, found.line, missed.function)
        if not found.loop:
            yield Departure(-1, "branch", header, missed=missed)
        elif not _continued_alike(mine, theirs, header):
            yield Departure(-1, "loop", header, missed=missed)


def _continued_alike(mine: Executed, theirs: Sequence[Executed], header: Site) -> bool:
    """Whether the line of the function that the rank ran after a loop was over is one that others ran too."""
    of_function = [
        at for at, site in mine.lines.items() if site.file == header.file and site.function == header.function
    ]
    after = (
        next((at for at in of_function[of_function.index(place(header)) + 1 :]), None)
        if place(header) in of_function
        else None
    )
    return after is not None and any(after in other.lines for other in theirs)


def loop_left(
    sources: Mapping[str, str], alone: Sequence[Site], theirs: Sequence[Executed], path: Sequence[Site]
) -> Departure | None:
    """The loop around a line of a path after which the rank alone ran a line of the same function: no other left it."""
    for site in path:
        for after in alone:
            if (after.file, after.function) == (site.file, site.function):
                header = _loop_between(sources, site, after)
                if header is not None and not any(
                    (ran.file, ran.function) == (site.file, site.function)
                    and _loop_between(sources, site, ran) == header
                    for other in theirs
                    for ran in other.lines.values()
                ):
                    return Departure(-1, "loop", Site(site.file, header, site.function), after=after)
    return None


def _loop_between(sources: Mapping[str, str], site: Site, after: Site) -> int | None:
    return loop_before(sources.get(site.file, ""), site.line, after.line)
