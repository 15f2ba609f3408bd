"""What a host says about the processes of ranks that run there, without asking them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ddpnb.ranks import connections, gpus, py_spy, source_text
from ddpnb.ranks.process_samples import ProcessSample, Sampler, queued, sample
from ddpnb.ranks.source_text import SourceText
from ddpnb.recording.recording import Child
from ddpnb.recording.stacks import Stack

if TYPE_CHECKING:
    from ddpnb.ranks.rank_processes import RankView

#: rank -> ``[[fd, [own address, port], [other address, port]], ...]``
Connections = Mapping[int, Sequence[Sequence[Any]]]


class Outside:
    """A view of the ranks' processes on this host, for one reader: it may keep what it saw last."""

    #: whether their process IDs mean what they mean here
    here = True

    def __init__(self, processes: RankView) -> None:
        self._processes = processes
        self._sampler = Sampler()

    def samples(self, ranks: Iterable[int]) -> dict[int, ProcessSample]:
        """Each rank's process and its descendants at this moment; a rank of a host that is silent is left out."""
        pids = {rank: self._processes.pid(rank) for rank in ranks}  # a rank that was only just found has one now
        samples = self._sampler.sample(pids.values())
        return {rank: samples[pid] for rank, pid in pids.items()}

    def stacks(self, rank: int, timeout: float = py_spy.TIMEOUT_S) -> tuple[Stack, ...]:
        """The stacks of the rank, read by py-spy; empty if that fails."""
        pid = self._processes.pid(rank)
        return py_spy.py_spy_stacks(pid, timeout) if pid else ()

    def children(self, rank: int, idle_s: float, end: float = math.inf) -> tuple[Child, ...]:
        """The processes that the rank has started, with their stacks: see ``py_spy.children``."""
        pid = self._processes.pid(rank)
        return py_spy.children(sample([pid])[pid].descendants, idle_s, end)

    def connections(self, ranks: Iterable[int]) -> Connections:
        """For each rank its TCP connections whose other end is one of these ranks too."""
        pids = {rank: self._processes.pid(rank) for rank in ranks}
        between = connections.between(pids.values())
        return {rank: between[pid] for rank, pid in pids.items() if pid in between}

    def in_transit(self, between: Connections) -> bool:
        """Whether a message is on its way on one of these connections."""
        return connections.in_transit({self._processes.pid(rank): rows for rank, rows in between.items()})

    def usage(self, rank: int) -> dict[str, Any]:
        """Memory and use of the rank's GPU: see ``gpus.usage``."""
        return gpus.usage(self._processes.device(rank), self._processes.visible_devices(rank))

    def source(self, rank: int, path: str) -> SourceText | None:  # noqa: ARG002
        """The text of a file that the rank has named; None if its host does not answer."""
        return source_text.read(path)

    def queued(self, rank: int, pid: int) -> tuple[int, int] | None:  # noqa: ARG002
        """A moment, and how long the main thread of the rank has waited for a core by then; None: not known.

        Args:
            rank: the rank.
            pid: of its process, as its black box says.
        """
        return queued(pid)
