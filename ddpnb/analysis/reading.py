"""A whole project read: every function walked through until what is known of one has reached the others."""

from __future__ import annotations

import ast
import re

from ddpnb.analysis.differences import Facts
from ddpnb.analysis.modules import Project, Scope
from ddpnb.analysis.operations import Operations
from ddpnb.analysis.walk import Walk

_ROUNDS = 3
# What a function must mention for its values to differ from rank to rank by itself. Others without a collective are
# taken as calls that nobody explains, which is what they would turn out to be.
_HINTS = re.compile(
    r"rank|RANK|process_index|_process\b|is_main|master|environ|getenv|hostname|getpid|distributed|\bdist\.|PROCID|"
    r"\brandom\b|\btime\.|os\.path\.|listdir|glob|IterableDataset"
)


class Reading(Operations):
    """What the source of a project says: a walk for each function of it.

    ``whole``: walk through every function, not only those that matter for collectives.
    """

    def __init__(self, project: Project, *, whole: bool = False) -> None:
        super().__init__(project)
        self.facts = Facts()
        self.walks: list[Walk] = []
        scopes = [scope for scope in project.scopes() if whole or self._matters(scope)]
        for number in range(_ROUNDS):
            found = Facts()
            self.walks = []
            for scope in scopes:
                walk = Walk(self, scope, found, last=number > 0)
                try:
                    walk.run()
                except RecursionError:
                    continue
                self.walks.append(walk)
            settled = number > 0 and found.settled(self.facts)
            self.facts = found
            if settled:
                break

    def _matters(self, scope: Scope) -> bool:
        if isinstance(scope.node, ast.Module) or self.all_of(scope):
            return True
        lines = self.project.modules[scope.path].lines[scope.node.lineno - 1 : scope.node.end_lineno]
        return any(_HINTS.search(line[:1000]) for line in lines)
