"""A c10d back end in Python that behaves to its host as NCCL does.

- A call queues its work on the stream of the device and returns; ``wait()`` returns too. Only what synchronises blocks.
- The stream waits in a collective until all members are in it, and for nothing else: not on a socket that could be shut down.
  ``abort()`` ends that, and with it the communicator.
- The sizes of members that differ are not compared. Such a collective never ends, as with most sizes of NCCL.
- A watchdog thread looks at the calls in the order in which they were made. When one takes longer than its time-out, counted from
  the call, it writes what torch's writes, dumps its flight recorder, and ends the process (``TORCH_NCCL_ASYNC_ERROR_HANDLING``;
  with 0 it only sets the error, and with ``TORCH_NCCL_BLOCKING_WAIT=1`` ``wait()`` blocks and raises instead).
- Its flight recorder writes torch's format to the file of ``TORCH_FR_DUMP_TEMP_FILE`` and the rank, also when the pipe
  ``TORCH_NCCL_DEBUG_INFO_PIPE_FILE`` asks for it.

Members exchange their tensors by files in a folder that the first one makes: not by gloo, whose connections a release ends.
"""

from __future__ import annotations

import os
import pickle
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from tests.nccl_like import FOLDER, device

C10D = torch._C._distributed_c10d  # type: ignore[attr-defined]
TEARS_DOWN = ("1", "3")  # of TORCH_NCCL_ASYNC_ERROR_HANDLING: the process ends
_LOOK_S, _WATCH_S = 0.002, 0.1
_SUMS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "SUM": lambda all_: all_.sum(0, dtype=all_.dtype),
    "AVG": lambda all_: all_.mean(0),
    "PRODUCT": lambda all_: all_.prod(0, dtype=all_.dtype),
    "MIN": lambda all_: all_.amin(0),
    "MAX": lambda all_: all_.amax(0),
}


class AbortedError(RuntimeError):
    """The communicator was aborted."""


class NcclLikeWork(dist.Work):
    """A call: ``entry`` is its record in the flight recorder."""

    def __init__(self, backend: NcclLike, entry: dict[str, Any], outputs: list[torch.Tensor]) -> None:
        super().__init__()
        self.entry, self.backend, self.outputs = entry, backend, outputs
        self.began = time.monotonic()
        self.done = threading.Event()
        self.error: BaseException | None = None
        self.future: torch.futures.Future[Any] = torch.futures.Future()

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Order the streams; with ``TORCH_NCCL_BLOCKING_WAIT`` or a time-out of its own, block the host."""
        limit = timeout.total_seconds()
        if limit <= 0 and os.environ.get("TORCH_NCCL_BLOCKING_WAIT") == "1":
            limit = self.entry["timeout_ms"] / 1000
        if limit > 0:
            if not self.done.wait(limit):
                self.backend.abort()
                raise dist.DistBackendError(f"Watchdog caught collective operation timeout: {self}")
            if self.error is not None:
                raise dist.DistBackendError(str(self.error))
        return True

    def is_completed(self) -> bool:
        return self.done.is_set()

    def is_success(self) -> bool:
        return self.done.is_set() and self.error is None

    def get_future(self) -> torch.futures.Future[Any]:
        return self.future

    def end(self, error: BaseException | None) -> None:
        """The stream is through with it."""
        self.error = error
        self.done.set()
        if error is None:
            self.future.set_result(self.outputs)
        else:
            self.future.set_exception(error)

    def __str__(self) -> str:
        entry = self.entry
        op = entry["profiling_name"].partition(":")[2].replace("_", "").upper()
        sizes = [[torch.Size(size).numel() for size in entry[f"{side}_sizes"]] for side in ("input", "output")]
        return (
            f"WorkNCCL(SeqNum={entry['collective_seq_id']}, OpType={op}, NumelIn={sum(sizes[0])}, NumelOut={sum(sizes[1])}, "
            f"Timeout(ms)={entry['timeout_ms']})"
        )


class Options(C10D.Backend.Options):
    """Those of every back end: the time-out."""

    def __init__(self, timeout: timedelta) -> None:
        super().__init__("nccl_like", timeout)


class NcclLike(C10D.Backend):
    """The back end of one group. ``ranks`` are the global ranks of its members."""

    def __init__(
        self, store: dist.Store, rank: int, size: int, timeout: timedelta, ranks: Sequence[int], name: str
    ) -> None:
        super().__init__(rank, size)
        self._options = Options(timeout)
        self.me, self.members, self.ranks, self.group = rank, size, list(ranks), name
        self.aborted = threading.Event()
        self._error = C10D.ErrorType.SUCCESS
        self._works: list[NcclLikeWork] = []
        self._calls = self._pairs = 0
        self._turns: dict[tuple[int, int, int], int] = {}  # of messages, by sender, receiver and tag
        if rank == 0:
            store.set("folder", tempfile.mkdtemp(prefix="nccl_like_", dir=os.environ.get(FOLDER)))
        self._read_by_all = ""  # the file of the last call
        self._folder = store.get("folder").decode()
        recorder.add(self)
        watchdog = threading.Thread(target=_watch, args=(weakref.ref(self),), name="pt_nccl_watchdg", daemon=True)
        watchdog.start()

    # -- what every back end has

    @property
    def options(self) -> Options:
        return self._options

    @property
    def supports_coalescing(self) -> bool:
        return False

    @property
    def supports_splitting(self) -> bool:
        return False

    def getBackendName(self) -> str:  # noqa: N802 (torch's name)
        return "nccl_like"

    def set_timeout(self, timeout: timedelta) -> None:
        self._options._timeout = timeout

    def _get_sequence_number_for_group(self) -> int:
        return self._calls

    def get_error(self) -> Any:
        return self._error

    def abort(self) -> None:
        """End what the stream waits for, and all later calls."""
        self._error = C10D.ErrorType.COMM_ERROR
        self.aborted.set()

    def shutdown(self) -> None:
        """The group is destroyed."""
        self.aborted.set()

    # -- collectives

    def allreduce(self, tensors: list[torch.Tensor], options: Any) -> NcclLikeWork:
        reduce = _reduction(options)
        return self._call(
            "all_reduce", tensors, tensors, options, lambda mine, all_: _put(mine, [reduce(one) for one in all_])
        )

    def broadcast(self, tensors: list[torch.Tensor], options: Any) -> NcclLikeWork:
        return self._call(
            "broadcast", tensors, tensors, options, lambda mine, all_: _put(mine, _of(all_, options.rootRank))
        )

    def reduce(self, tensors: list[torch.Tensor], options: Any) -> NcclLikeWork:
        reduce, root = _reduction(options), options.rootRank == self.me
        return self._call(
            "reduce",
            tensors,
            tensors,
            options,
            lambda mine, all_: _put(mine, [reduce(one) for one in all_]) if root else None,
        )

    def allgather(self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], options: Any) -> NcclLikeWork:
        return self._call("all_gather", inputs, outputs[0], options, lambda mine, all_: _put(mine, list(all_[0])))

    def all_gather_single(self, output: torch.Tensor, given: torch.Tensor, options: Any) -> NcclLikeWork:
        return self._call(
            "_all_gather_base",
            [given],
            [output],
            options,
            lambda mine, all_: mine[0].view(-1).copy_(all_[0].reshape(-1)),
        )

    def reduce_scatter_single(self, output: torch.Tensor, given: torch.Tensor, options: Any) -> NcclLikeWork:
        reduce, me, size = _reduction(options), self.me, self.members

        def scatter(mine: list[torch.Tensor], all_: list[torch.Tensor]) -> None:
            mine[0].view(-1).copy_(reduce(all_[0]).reshape(size, -1)[me])

        return self._call("_reduce_scatter_base", [given], [output], options, scatter)

    _allgather_base, _reduce_scatter_base = all_gather_single, reduce_scatter_single

    def barrier(self, options: Any) -> NcclLikeWork:
        return self._call("barrier", [torch.zeros(1)], [], options, lambda _mine, _all: None)

    def send(self, tensors: list[torch.Tensor], peer: int, tag: int) -> NcclLikeWork:
        return self._message("send", tensors, self.me, peer, tag)

    def recv(self, tensors: list[torch.Tensor], peer: int, tag: int) -> NcclLikeWork:
        return self._message("recv", tensors, peer, self.me, tag)

    def _call(
        self,
        op: str,
        inputs: list[torch.Tensor],
        outputs: list[torch.Tensor],
        options: Any,
        then: Callable[[Any, Any], Any],
    ) -> NcclLikeWork:
        self._calls += 1
        key, given = f"{self._calls}", _hosts(inputs)
        mine = _hosts(outputs)
        signature = (
            op,
            [tuple(one.shape) for one in given] if op != "broadcast" else (),
            getattr(options, "rootRank", -1),
        )

        def exchange() -> None:
            written = self._write(f"{key}.{self.me}", repr(signature), given)
            theirs = [self._read(f"{key}.{rank}", repr(signature)) for rank in range(self.members)]
            if self._read_by_all:  # since they are all in this call
                os.unlink(self._read_by_all)
            self._read_by_all = written
            then(mine, [torch.stack([each[place] for each in theirs]) for place in range(len(given))])

        asked = getattr(options, "timeout", timedelta(milliseconds=-1))
        return self._queue(op, inputs, outputs, exchange, asked)

    def _message(self, op: str, tensors: list[torch.Tensor], sender: int, receiver: int, tag: int) -> NcclLikeWork:
        self._pairs += 1
        turn = self._turns[sender, receiver, tag] = self._turns.get((sender, receiver, tag), 0) + 1
        key, mine = f"p{sender}.{receiver}.{tag}.{turn}", _hosts(tensors)

        def exchange() -> None:
            if op == "send":
                self._write(key, "", mine)
                self._read(f"{key}.taken", "")
            else:
                _put(mine, self._read(key, ""))
                self._write(f"{key}.taken", "", [])

        return self._queue(op, tensors, tensors, exchange, timedelta(milliseconds=-1), f"{sender}->{receiver}")

    def _queue(
        self,
        op: str,
        inputs: list[torch.Tensor],
        outputs: list[torch.Tensor],
        exchange: Callable[[], None],
        asked: timedelta,
        pair: str = "",
    ) -> NcclLikeWork:
        if self.aborted.is_set():
            raise dist.DistBackendError(f"NCCL communicator was aborted on rank {self.me}.")
        timeout = asked if asked > timedelta(0) else self._options._timeout
        entry = recorder.begin(self, op, inputs, outputs, timeout, pair)
        work = NcclLikeWork(self, entry, outputs)
        self._works.append(work)

        def run() -> None:
            entry["state"], entry["time_discovered_started_ns"] = "started", time.time_ns()
            error: BaseException | None = None
            try:
                exchange()
                entry["state"], entry["time_discovered_completed_ns"] = "completed", time.time_ns()
            except AbortedError as aborted:
                error = aborted
            entry["retired"] = True
            self._works.remove(work)
            work.end(error)

        device.stream().put(run)
        return work

    # -- the exchange, on the stream

    def _write(self, name: str, signature: str, tensors: list[torch.Tensor]) -> str:
        path = os.path.join(self._folder, name)
        with open(f"{path}.new", "wb") as file:  # by pickle: torch.save() would be recorded as the program's
            pickle.dump((signature, [_packed(one) for one in tensors]), file)
        os.replace(f"{path}.new", path)
        return path

    def _read(self, name: str, expected: str) -> list[torch.Tensor]:
        path = os.path.join(self._folder, name)
        while True:
            if self.aborted.is_set():
                raise AbortedError(f"NCCL communicator was aborted on rank {self.me}.")
            if os.path.exists(path):
                with open(path, "rb") as file:
                    signature, value = pickle.load(file)
                if signature == expected:
                    return [_unpacked(*one) for one in value]
            time.sleep(_LOOK_S)

    # -- the watchdog

    def overdue(self) -> NcclLikeWork | None:
        """The oldest call that is over its time-out."""
        now = time.monotonic()
        late = (work for work in list(self._works) if now - work.began > work.entry["timeout_ms"] / 1000)
        return next(late, None)

    def time_out(self, work: NcclLikeWork) -> None:
        """What torch's watchdog does."""
        self._error = C10D.ErrorType.TIMEOUT
        ran = int((time.monotonic() - work.began) * 1000)
        prefix = f"[rank{dist.get_rank()}]:[E ProcessGroupNCCL.cpp:688] [Rank {self.me}]"
        print(
            f"{prefix} Watchdog caught collective operation timeout: {work} ran for {ran} milliseconds before timing out.",
            file=sys.stderr,
            flush=True,
        )
        if os.environ.get("TORCH_NCCL_DUMP_ON_TIMEOUT", "1") == "1":
            recorder.dump()
        if os.environ.get("TORCH_NCCL_ASYNC_ERROR_HANDLING", "3") in TEARS_DOWN:
            print(
                f"{prefix} To avoid data inconsistency, we are taking the entire process down.",
                file=sys.stderr,
                flush=True,
            )
            os.abort()


def _watch(reference: weakref.ref[NcclLike]) -> None:
    while True:
        time.sleep(_WATCH_S)
        backend = reference()
        if backend is None or backend.aborted.is_set() or os.environ.get("TORCH_NCCL_BLOCKING_WAIT") == "1":
            return
        late = backend.overdue()
        if late is not None:
            backend.time_out(late)
            return


class Recorder:
    """The flight recorder of this process, in torch's format."""

    def __init__(self) -> None:
        self._entries: list[dict[str, Any]] = []
        self._backends: weakref.WeakSet[NcclLike] = weakref.WeakSet()
        self._listening = 0  # the process that reads the pipe

    def add(self, backend: NcclLike) -> None:
        """A group was made."""
        self._backends.add(backend)
        pipe = os.environ.get("TORCH_NCCL_DEBUG_INFO_PIPE_FILE")
        if pipe and self._listening != os.getpid():
            self._listening = os.getpid()
            path = f"{pipe}{os.environ.get('RANK', '0')}.pipe"
            os.mkfifo(path)
            threading.Thread(target=self._listen, args=(path,), name="pt_nccl_heartbt", daemon=True).start()

    def _listen(self, path: str) -> None:
        with open(path, "r+b", buffering=0) as pipe:  # for writing too: it never ends
            while True:
                if pipe.read(64).startswith(b"1"):
                    self.dump()

    def begin(
        self,
        backend: NcclLike,
        op: str,
        inputs: list[torch.Tensor],
        outputs: list[torch.Tensor],
        timeout: timedelta,
        pair: str,
    ) -> dict[str, Any]:
        """The record of a new call."""
        frame, frames = sys._getframe(3), []
        while frame is not None:
            code = frame.f_code
            frames.append({"name": code.co_name, "filename": code.co_filename, "line": frame.f_lineno})
            frame = frame.f_back
        entry = {
            "frames": frames,
            "record_id": len(self._entries),
            "pg_id": 0,
            "process_group": (backend.group, "default_pg" if backend.group == "0" else "undefined"),
            "thread_id": str(threading.get_native_id()),
            "thread_name": threading.current_thread().name,
            "collective_seq_id": backend._calls,
            "p2p_seq_id": backend._pairs,
            "op_id": len(self._entries) + 1,
            "profiling_name": f"nccl:{op}{pair and ' '}{pair}",
            "time_created_ns": time.time_ns(),
            "input_sizes": [list(one.shape) for one in inputs],
            "input_dtypes": [str(one.dtype).removeprefix("torch.").title() for one in inputs],
            "output_sizes": [list(one.shape) for one in outputs],
            "output_dtypes": [str(one.dtype).removeprefix("torch.").title() for one in outputs],
            "state": "scheduled",
            "time_discovered_started_ns": None,
            "time_discovered_completed_ns": None,
            "retired": False,
            "timeout_ms": int(timeout.total_seconds() * 1000),
            "is_p2p": bool(pair),
        }
        self._entries.append(entry)
        return entry

    def dump(self) -> None:
        """Write the file."""
        backends = sorted(self._backends, key=lambda one: one.group)
        told = {
            "version": "2.10",
            "pg_config": {
                one.group: {"name": one.group, "desc": "default_pg", "ranks": str(one.ranks)} for one in backends
            },
            "pg_status": {
                one.group: {
                    "last_enqueued_collective": one._calls,
                    "last_started_collective": -1,
                    "last_completed_collective": -1,
                }
                for one in backends
            },
            "comm_lib_version": "2.28.9",
            "nccl_comm_state": {},
            "entries": [dict(entry) for entry in self._entries],
        }
        stem = os.environ.get("TORCH_FR_DUMP_TEMP_FILE") or os.environ.get("TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
        if stem:
            path = f"{stem}{os.environ.get('RANK', '0')}"
            with open(f"{path}.new", "wb") as file:
                pickle.dump(told, file, protocol=2)
            os.replace(f"{path}.new", path)


recorder = Recorder()


def _packed(tensor: torch.Tensor) -> tuple[bytes, torch.dtype, torch.Size]:
    return bytes(tensor.detach().contiguous().flatten().view(torch.uint8).tolist()), tensor.dtype, tensor.shape


def _unpacked(data: bytes, dtype: torch.dtype, shape: torch.Size) -> torch.Tensor:
    return torch.frombuffer(bytearray(data), dtype=dtype).view(shape) if data else torch.empty(shape, dtype=dtype)


def _hosts(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [device.host(one) if one.device.type != "cpu" else one for one in tensors]


def _put(mine: list[torch.Tensor], values: Sequence[torch.Tensor]) -> None:
    for target, value in zip(mine, values, strict=True):
        target.copy_(value)


def _of(all_: list[torch.Tensor], rank: int) -> list[torch.Tensor]:
    return [one[rank] for one in all_]


def _reduction(options: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    op = options.reduceOp
    return _SUMS[str(getattr(op, "op", op)).rpartition(".")[2]]


def _make(options: Any, _given: Any) -> NcclLike:
    ranks = options.global_ranks_in_group or range(options.group_size)
    return NcclLike(options.store, options.group_rank, options.group_size, options.timeout, ranks, options.group_id)


def install(name: str, on: str) -> None:
    """Register the back end; once is enough."""
    if name not in dist.Backend.backend_list:
        device.as_library(globals())
        dist.Backend.register_backend(name, _make, extended_api=True, devices=[on])
