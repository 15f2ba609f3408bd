"""The ranks of a World: which are alive, which are busy, and how to send them requests."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ddpnb import arguments
from ddpnb.errors import WorldError
from ddpnb.model import phrases
from ddpnb.model.rank_state import RankState
from ddpnb.views.status import RankStatus, status

if TYPE_CHECKING:
    from ddpnb.control.run import Run
    from ddpnb.model.recording import Recording
    from ddpnb.processes.folder import Folders
    from ddpnb.processes.rank_processes import RankProcesses

ANSWER_S = 2.0  # how long a rank may take to answer on the control channel


class Ranks:
    """The attributes of ``World`` that its parts share. The lock guards all public methods."""

    size: int
    _engines: RankProcesses
    _folders: Folders
    _folder: str  # the one in memory
    _last: Run | None  # the run that was started last
    _in_run: dict[int, Run]  # the run that each rank's process was last in
    _lock: threading.RLock

    def _check_open(self) -> None:
        raise NotImplementedError

    def _busy(self) -> list[int]:
        """The ranks that are in a run or in a start-up step."""
        raise NotImplementedError

    def _look(self, *, ask: bool = False) -> Recording:
        """A Recording of this moment; ``ask``: with the ranks' own stacks."""
        raise NotImplementedError

    def _asked(self, *, values: bool) -> Recording:
        """A Recording of this moment; ``values``: with the norms of tensors, to tell those of one shape apart."""
        raise NotImplementedError

    def _states(self) -> tuple[RankStatus, ...]:
        taken = self._look()
        found = status(taken)
        if any(one.state is RankState.BLOCKED and taken.ranks[one.rank].in_flight for one in found):
            found = status(self._look(ask=True))  # that it waits in torch for one of its calls its stack alone can tell
        return found

    def _alive(self, rank: int) -> bool:
        return self._engines.alive(rank)

    def _stopped(self, rank: int) -> bool:
        """Whether its process is stopped (SIGSTOP, a debugger), by the kernel."""
        return self._engines.stopped(rank)

    def _chosen(self, ranks: int | Iterable[int] | None) -> tuple[int, ...]:
        """These ranks, or all that are alive.

        Raises:
            UsageError: unknown rank.
            WorldError: one of these ranks is dead.
        """
        if ranks is None:
            return tuple(rank for rank in range(self.size) if self._alive(rank))
        wanted = arguments.ranks(ranks, self.size)
        for rank in wanted:
            if not self._alive(rank):
                raise WorldError(f"rank {rank} is dead.", f"world.restart({rank}) replaces it.")
        return wanted

    def _tell(self, ranks: Sequence[int], content: dict[str, Any]) -> None:
        """Send a request to ranks and wait for their answers. Ranks that have not begun their run apply it then.

        Raises:
            WorldError: a rank is unresponsive.
        """
        answers = self._engines.ask_each(self._in_their_runs(ranks, content), ANSWER_S)
        deaf = [rank for rank in ranks if rank not in answers]
        if deaf:
            self._engines.check_connection()
            stopped = [rank for rank in deaf if self._engines.stopped(rank)]
            why = f" ({phrases.ranks(stopped)} {phrases.verb(stopped, 'is', 'are')} stopped)" if stopped else ""
            raise WorldError(
                f"{phrases.ranks(deaf, True)} {phrases.verb(deaf, 'is', 'are')} unresponsive{why}.",
                f"world.restart({deaf[0]}) replaces it.",
            )
        refused = next((one["error"] for one in answers.values() if one.get("status") == "error"), None)
        if refused is not None:
            raise WorldError(f"a rank refused the request: {refused}.")

    def _tell_all(self, content: dict[str, Any]) -> None:
        """Send a request to all ranks that are alive; ignore missing answers."""
        alive = [rank for rank in range(self.size) if self._alive(rank)]
        self._engines.ask_each(self._in_their_runs(alive, content), ANSWER_S)

    def _in_their_runs(self, ranks: Sequence[int], content: dict[str, Any]) -> dict[int, dict[str, Any]]:
        """The request for each rank, with the number of the run that it is in or about to begin."""
        runs = {rank: self._in_run.get(rank) for rank in ranks}
        return {rank: {**content, "run": run.number if run and run.is_in(rank) else 0} for rank, run in runs.items()}
