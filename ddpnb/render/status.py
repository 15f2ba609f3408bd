"""What the ranks are doing, as a table."""

from __future__ import annotations

from collections.abc import Sequence

from ddpnb.render.document import Table
from ddpnb.render.rank_states import LOOKS
from ddpnb.render.views.status import RankStatus
from ddpnb.texts import one_line

_WIDEST = 60  # characters of a value in a column


def status(ranks: Sequence[RankStatus]) -> Table:
    """A row per rank; with the checkpoints, if a rank passed one."""
    passed = any(rank.checkpoint for rank in ranks)
    head = ("rank", "state", "doing", "steps", *(["passed last"] if passed else []))
    rows = [
        (str(rank.rank), LOOKS[rank.state].words, rank.doing, str(rank.steps), one_line(rank.checkpoint, _WIDEST))
        for rank in ranks
    ]
    return Table("state of the ranks", head, [row[: len(head)] for row in rows])
