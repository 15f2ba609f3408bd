"""Processes that read dumps: a pickle is built only where memory and time are limited.

Each is a plain interpreter that knows this package and nothing of the caller. It answers with JSON and arrays, never with a
pickle, and ends when its standard input does, which is at the latest when the caller ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from ddpnb.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import BinaryIO

    Source = str | Callable[[], bytes]

LARGEST_FILE = 256 << 20
MOST_PROCESSES, _SHARE = 8, 512 << 10  # each of them holds one dump, and is started for so many bytes
_ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 3))
_START = "import sys; sys.path.append(sys.argv[1]); from ddpnb.reports.dumps.processes import serve; serve()"
# Bytes of memory, that of the interpreter included; of processor time for one file. Of 64 MiB: 1 GiB and 20 s.
_LEAST, _PER_BYTE, _USUAL, _MOST = 512 << 20, 48, 1 << 30, 8 << 30
_LARGE = 64 << 20
_LARGEST_TABLE = 16 << 20
_SECONDS, _BYTES_A_SECOND = 4, 4 << 20
_LONGEST_HEAD = 8192  # bytes


class Reading(NamedTuple):
    """What one file holds (``entries.columns``), or why it is not read; ``unsafe``: it asks to execute something."""

    table: bytes = b""
    facts: bytes = b""
    columns: tuple[bytes, ...] = ()
    refused: str = ""
    unsafe: bool = False


# In the caller


def read_files(files: Sequence[Source]) -> Iterator[tuple[int, Reading]]:
    """Read dumps, on all cores.

    Args:
        files: the paths of files; or what gives the content of one that cannot be opened as it is.

    Yields:
        The place of a file in ``files``, and what it holds, in the order in which they are done.
    """
    import queue
    import threading

    left = iter(range(len(files)))
    lock, answers = threading.Lock(), queue.SimpleQueue[tuple[int, Reading | BaseException]]()
    most = min(len(os.sched_getaffinity(0)), MOST_PROCESSES, 1 + sum(map(_size, files)) // _SHARE)
    readers = [_Reader() for _ in range(min(most, len(files)))]

    def work(reader: _Reader) -> None:
        while True:
            with lock:
                place = next(left, None)
            if place is None:
                return
            try:
                answers.put((place, reader.read(files[place])))
            except BaseException as error:
                answers.put((place, error))

    threads = [threading.Thread(target=work, args=(reader,), daemon=True) for reader in readers]
    try:
        for thread in threads:
            thread.start()
        for _ in files:
            place, answer = answers.get()
            if isinstance(answer, BaseException):
                raise answer
            yield place, answer
    finally:
        with lock:
            left = iter(())
        for reader in readers:
            reader.end()
        for thread in threads:
            if thread.ident is not None:
                thread.join()


def _size(file: Source) -> int:
    try:
        return os.path.getsize(file) if isinstance(file, str) else _SHARE
    except OSError:
        return 0


class _Reader:
    """One process; another one follows if it ends."""

    def __init__(self) -> None:
        import threading

        self._process: Any = None
        self._ended = False
        self._lock = threading.Lock()

    def read(self, file: Source) -> Reading:
        content = b"" if isinstance(file, str) else file()
        request = {"path": os.path.abspath(file)} if isinstance(file, str) else {"size": len(content)}
        with self._lock:
            if self._process is None and not self._ended:
                self._start()
            process = self._process
        if process is None:
            return Reading(refused="was not read")
        try:
            process.stdin.writelines((json.dumps(request).encode(), b"\n", content))
            process.stdin.flush()
            head = json.loads(process.stdout.readline(_LONGEST_HEAD))
            table, facts, *columns = [_exactly(process.stdout, length) for length in head["lengths"]] or (b"", b"")
            return Reading(table, facts, tuple(columns), head["refused"], head["unsafe"])
        except (EOFError, OSError, ValueError, KeyError, TypeError):
            self._stop()
            return Reading(refused="needs more time or memory than a dump of its size may need")

    def _start(self) -> None:
        import subprocess

        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-B", "-c", _START, _ROOT],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd=os.sep,
            )
        except OSError as error:
            raise UsageError(f"The Python interpreter {sys.executable!r} could not be started: {error}.") from None

    def end(self) -> None:
        """End its process, and start no other one."""
        self._ended = True
        self._stop()

    def _stop(self) -> None:
        with self._lock:
            process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                with contextlib.suppress(OSError):
                    pipe.close()


def _exactly(pipe: BinaryIO, count: int) -> bytes:
    if not 0 <= count <= 2 * LARGEST_FILE:
        raise ValueError(count)
    data = pipe.read(count)
    if len(data) < count:
        raise EOFError
    return data


# In the process that reads


def serve() -> None:
    """Read the files that standard input names, one a line, until it ends."""
    import gc

    gc.disable()  # nothing here is a cycle, and a dump has very many containers
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    for line in iter(requests.readline, b""):
        parts, refused, unsafe = [], "", False
        try:
            parts = _read(json.loads(line), requests)
        except MemoryError:
            refused = "needs more memory than a dump of its size may need"
        except Exception as error:
            refused, unsafe = str(error)[:400], getattr(error, "unsafe", False)
        head = {"lengths": list(map(len, parts)), "refused": refused, "unsafe": unsafe}
        answers.write(json.dumps(head).encode() + b"\n")
        answers.writelines(parts)
        answers.flush()


def _read(request: dict[str, Any], requests: BinaryIO) -> list[bytes]:
    from ddpnb.reports.dumps.entries import columns
    from ddpnb.reports.pickles import Refused, loads

    if "size" in request:
        data = requests.read(request["size"])
    else:
        try:
            with open(request["path"], "rb") as file:
                data = file.read(LARGEST_FILE + 1)
        except OSError as error:
            raise Refused(f"cannot be read ({error.strerror})") from None
    if len(data) > LARGEST_FILE:
        raise Refused(f"is larger than {LARGEST_FILE >> 20} MiB")
    _limit(len(data))
    table, facts, found = columns(loads(data))
    if len(table) + len(facts) > _LARGEST_TABLE + len(data) // 4:
        raise Refused("repeats its content too often for a dump")
    return [table, facts, *(column.tobytes() for column in found)]


def _limit(size: int) -> None:
    """Limit memory and processor time to what a dump of this size may need."""
    import resource
    import time

    limits = {
        resource.RLIMIT_AS: min(_LEAST + _PER_BYTE * size, _USUAL if size <= _LARGE else _MOST),
        resource.RLIMIT_CPU: int(time.process_time()) + _SECONDS + size // _BYTES_A_SECOND,
        resource.RLIMIT_CORE: 0,
    }
    for limit, wanted in limits.items():
        _, hard = resource.getrlimit(limit)
        resource.setrlimit(limit, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard))
