"""Tab in a ``%%ddp`` cell: names of the ranks, which the notebook's own kernel does not know."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

from ddpnb.errors import DdpnbError
from ddpnb.recording.verbs import Completions
from ddpnb.world.world import World

ANSWER_S = 0.2  # a rank that does not answer costs this, once in _PAUSE_S
_PAUSE_S = 10.0
_CELL = re.compile(r"\s*%%ddp(?:_rank)?(?!\w)")
_TYPED = re.compile(r"(?<![\w.])(?:([^\W\d]\w*)\.)?([^\W\d]\w*)?$")  # a name, or one attribute of a name
_MOST = 1000


class RankNames:
    """Completes the variables of the ranks' cells, and one level of their attributes.

    Args:
        world: the World of the magics; raises if there is none.
    """

    def __init__(self, world: Callable[[], World]) -> None:
        self._world = world
        self._silent: dict[tuple[int, int], float] = {}  # ranks that did not answer, by process, and when

    def complete(self, cell: str, line: str) -> tuple[str, list[str]]:
        """What is typed last, and the names that begin so: the union of all ranks that answer.

        Args:
            cell: the whole text.
            line: the line with the cursor, up to the cursor.
        """
        typed = _TYPED.search(line)
        if typed is None or not _CELL.match(cell) or _CELL.match(line) or not (typed[1] or typed[2]):
            return "", []
        try:
            ranks = self._world()._ranks
        except DdpnbError:
            return "", []
        request = Completions(owner=typed[1] or "", prefix=typed[2] or "")
        now = time.monotonic()
        key = {rank: (rank, ranks.processes.pid(rank)) for rank in ranks.alive()}
        asked = [rank for rank in key if now - self._silent.get(key[rank], -_PAUSE_S) >= _PAUSE_S]
        answers = ranks.ask(asked, request, ANSWER_S) if asked else {}
        self._silent.update({key[rank]: now for rank in asked if rank not in answers})
        found = {name for answer in answers.values() for name in answer.names[:_MOST]}
        return request.prefix, sorted(name for name in found if name.isidentifier())[:_MOST]


def register(shell: Any, names: RankNames) -> None:
    """Complete in the cells of this shell, in addition to what IPython completes itself."""
    from IPython.core.completer import CompletionContext, SimpleCompletion, context_matcher

    @context_matcher()
    def ddpnb_rank_names(context: CompletionContext) -> Any:
        prefix, found = names.complete(context.full_text, context.text_until_cursor)
        head = context.token[: len(context.token) - len(prefix)] if context.token.endswith(prefix) else ""
        return {"completions": [SimpleCompletion(head + name, type="rank") for name in found]}

    shell.Completer.custom_matchers.append(ddpnb_rank_names)
