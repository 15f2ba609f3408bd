"""Clean up what a failed run left on ranks, and replace processes for which this fails."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence

from ddpnb.ranks.environment import working_directory
from ddpnb.ranks.rank_processes import Answer
from ddpnb.recorder import entries
from ddpnb.recording import verbs
from ddpnb.recording.progress import Progress
from ddpnb.world.faults import Faults
from ddpnb.world.ranks import OwnRanks

CLEAN_S = 5.0  # that a rank may take to end what a failed run has left; then its process is replaced, unless
_WORK_S = 0.1  # it has used so much of a core meanwhile; but
_AT_WORK_S = 30.0  # not longer than this
START_S = 60.0


class Replacement:
    """Cleans ranks and replaces their processes."""

    def __init__(self, ranks: OwnRanks, faults: Faults) -> None:
        self._ranks = ranks
        self._faults = faults

    def clean(self, ranks: Sequence[int]) -> list[int]:
        """Clean up what a failed run left on these ranks; returns the ranks on which this failed."""
        answers = {rank: self._ranks.engines.call(rank, entries.clean) for rank in self.cut(ranks)}
        self._wait(answers)
        cleaned = {rank for rank, answer in answers.items() if answer.ready() and answer.successful()}
        for rank in cleaned:
            self._ranks.in_run.pop(rank, None)
        return [rank for rank in ranks if rank not in cleaned]

    def _wait(self, answers: Mapping[int, Answer]) -> None:
        """Wait for as long as the processes that have not answered are at work: on a busy machine they take long."""
        waiting, end = dict(answers), time.monotonic() + _AT_WORK_S
        while waiting and time.monotonic() < end:
            used, deadline = self._cpu_s(waiting), time.monotonic() + CLEAN_S
            for answer in waiting.values():
                answer.wait(max(0.0, deadline - time.monotonic()))
            waiting = {rank: answer for rank, answer in waiting.items() if not answer.ready()}
            at_work = {rank for rank, now in self._cpu_s(waiting).items() if now - used.get(rank, now) > _WORK_S}
            waiting = {rank: answer for rank, answer in waiting.items() if rank in at_work}

    def _cpu_s(self, ranks: Iterable[int]) -> dict[int, float]:
        samples = self._ranks.processes.outside().samples(ranks)
        return {rank: sample.cpu_s for rank, sample in samples.items()}

    def cut(self, ranks: Sequence[int]) -> list[int]:
        """Shut down the connections between the ranks on these; returns the ranks that have answered."""
        processes, alive, busy = self._ranks.processes, self._ranks.alive(), self._ranks.busy()
        between = processes.outside().connections(alive)
        asked = [rank for rank in ranks if rank in alive and rank not in busy]
        requests = {rank: verbs.Cut(connections=between.get(rank, [])) for rank in asked}
        return list(processes.ask_each(requests, CLEAN_S))

    def replace(self, ranks: list[int], timeout: float = START_S) -> None:
        """Give these ranks new processes.

        Raises:
            LaunchError: a new process did not start; the other ranks are not affected.
        """
        if not ranks:
            return
        shared = self._ranks
        working_directory()
        with shared.folders.reserved(ranks) as adopt:  # while nothing has been touched
            for monitor in {shared.in_run[rank] for rank in ranks if rank in shared.in_run}:
                monitor.settle()
            port = shared.new_port()
            with Progress(f"restarting rank {', '.join(map(str, ranks))}", len(ranks), shared.quiet) as progress:
                shared.engines.progress = progress.update
                shared.engines.replace({rank: shared.environment(rank, port) for rank in ranks}, timeout, adopt)
        for rank in ranks:
            shared.in_run.pop(rank, None)
        self._faults.replaced(ranks)
