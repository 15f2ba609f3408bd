"""The analysis of a whole project: every function is walked until no pass learns anything new."""

from __future__ import annotations

import ast
import re

from ddpnb.lint.known import Facts
from ddpnb.lint.modules import Project
from ddpnb.lint.operations import Operations
from ddpnb.lint.scopes import Scope
from ddpnb.lint.walk import Walk

_ROUNDS = 3
# Words without which a function's own values do not differ between ranks. Others without a collective are taken as
# unknown calls, with the same result.
_HINTS = re.compile(
    r"rank|RANK|process_index|_process\b|is_main|master|environ|getenv|hostname|getpid|distributed|\bdist\.|PROCID|"
    r"\brandom\b|\btime\.|os\.path\.|listdir|glob|IterableDataset|"
    r"\bfor\b[^:]{0,100}\bin\b[^:]{0,100}(?:loader|dataset|batches|stream|_dl\b)"
)


class Reading(Operations):
    """What the source of a project says: a walk for each function that matters for collectives."""

    def __init__(self, project: Project) -> None:
        super().__init__(project)
        self.facts = Facts()
        self.walks: list[Walk] = []
        scopes = self._that_matter()
        for number in range(_ROUNDS):
            learned = Facts()
            self.walks = []
            for scope in scopes:
                walk = Walk(self, scope, learned, last=number > 0)
                try:
                    walk.run()
                except RecursionError:
                    continue
                self.walks.append(walk)
            settled = number > 0 and learned.settled(self.facts)
            self.facts = learned
            if settled:
                break

    def _that_matter(self) -> list[Scope]:
        """The functions that a walk can learn something from: what makes a collective, or mentions ranks or data.

        The ``__init__`` of such a method's class is included.
        """
        scopes = self.project.scopes()
        chosen = {scope.key for scope in scopes if self._matters(scope)}
        owners = {(scope.path, scope.owner) for scope in scopes if scope.owner and scope.key in chosen}
        return [
            scope
            for scope in scopes
            if scope.key in chosen or (scope.name.endswith(".__init__") and (scope.path, scope.owner) in owners)
        ]

    def _matters(self, scope: Scope) -> bool:
        if isinstance(scope.node, ast.Module) or self.all_of(scope):
            return True
        lines = self.project.modules[scope.path].lines[scope.node.lineno - 1 : scope.node.end_lineno]
        return any(_HINTS.search(line[:1000]) for line in lines)
