"""Every collective of a project, and the conditions under which a rank reaches it.

Based on syntax trees alone: nothing is imported, nothing runs, and results are advice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ddpnb.recording.source.unwaited import Unwaited, unwaited
from ddpnb.studies.scan.modules import Problem, Project
from ddpnb.studies.scan.operations import FRAMEWORKS
from ddpnb.studies.scan.ranks import Ranks
from ddpnb.studies.scan.sites import CollectiveSite
from ddpnb.studies.scan.walk import Walk

_MOST_SITES = 5000


@dataclass(frozen=True, slots=True)
class Scan:
    """What a scan found. ``sites`` holds the marked ones first, then the order of files and lines."""

    sites: tuple[CollectiveSite, ...]
    files: tuple[str, ...]
    problems: tuple[Problem, ...] = ()
    unwaited: tuple[tuple[str, Unwaited], ...] = ()  # by file

    @property
    def marked(self) -> tuple[CollectiveSite, ...]:
        return tuple(site for site in self.sites if site.marked)


def scan(sources: Mapping[str, str], entries: Sequence[str]) -> Scan:
    """Every collective of the entries and of the modules of ``sources`` that they import, directly or not.

    Args:
        sources: the texts of the project's files by path. Only paths at which an import may lie are
            asked for, so that it may read them from a disk when asked.
        entries: paths of the scripts.
    """
    project = Project(sources, entries)
    modules = project.modules.values()
    uses_framework = any(name.startswith(FRAMEWORKS) for module in modules for _, name, _ in module.names.imports)
    sites: list[CollectiveSite] = []
    for module in modules:
        ranks = Ranks(module)
        for scope in module.scopes() if len(sites) < _MOST_SITES else ():
            try:
                sites += Walk(scope, ranks, uses_framework).sites
            except RecursionError:
                project.problems.append(Problem(module.path, 0, "nested too deeply"))
    order = {path: number for number, path in enumerate(project.modules)}
    sites.sort(key=lambda site: (not site.marked, order[site.site.file], site.site.line, site.last_line))
    late = [
        (module.path, work)
        for module in modules
        if any(word in module.source for word in ("async_op", "isend", "irecv"))
        for work in unwaited(module.source)
    ]
    return Scan(tuple(sites[:_MOST_SITES]), tuple(project.modules), tuple(project.problems), tuple(late))
