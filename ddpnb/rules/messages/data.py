"""DDP505-508: DataLoader workers, their shared memory, and their samples."""

from __future__ import annotations

import re

from ddpnb.rules.messages.explained import Explained, Raised

_FULL = r"(?:No space left on device|Cannot allocate memory|File too large)"
_SHARED = (
    re.compile(
        rf"(?:unable to (?:mmap|allocate|write|open|resize|fstat)|could not (?:unlink|unmap))[^\n]{{0,120}}</?(torch_\w{{1,80}})>[^\n]{{0,80}}{_FULL}"
    ),
    re.compile(rf"{_FULL}[^\n]{{0,20}}'(/dev/shm[^'\n]{{0,200}})'"),
    re.compile(r"out of (shared memory)\. Please try to raise your shared memory limit"),
    re.compile(r"bus error encountered in worker\. This might be caused by insufficient (shared memory)"),
)
_SIGNAL = re.compile(r"DataLoader worker \(pid (\d{1,10})\) is killed by signal: ([A-Za-z ]{1,40})")
_EXITED = re.compile(
    r"DataLoader worker \(pid(?:\(s\))? ([\d, ]{1,200})\) exited unexpectedly(?: with exit code (-?\d{1,6}))?"
)
_SLOW = re.compile(r"DataLoader timed out after (\d{1,9}(?:\.\d{1,3})?) seconds")


def shared_memory(raised: Raised) -> Explained | None:
    exited = _EXITED.search(raised.text) is not None
    for pattern in _SHARED:
        if match := pattern.search(raised.text) or (exited and pattern.search(raised.traceback)) or None:
            return _shared_memory(
                (f"The failing object is {match[1]}.",) if match[1].startswith(("torch_", "/dev")) else ()
            )
    if any(map(raised.passes, _SHARERS)) and re.search(rf"\[Errno \d{{1,3}}\] {_FULL}", raised.text):
        return _shared_memory(())
    return None


_SHARERS = ("multiprocessing/shared_memory", "multiprocessing/heap")


def _shared_memory(evidence: tuple[str, ...]) -> Explained:
    return Explained(
        "DDP506",
        "Shared memory (/dev/shm) is full; processes pass batches and buffers through it.",
        "Give the container more: docker run --shm-size=8g (or --ipc=host); in Kubernetes an emptyDir with medium: "
        "Memory at /dev/shm. Or use less: fewer workers, prefetch_factor=1, smaller batches, "
        'torch.multiprocessing.set_sharing_strategy("file_system").',
        evidence,
    )


def worker_died(raised: Raised) -> Explained | None:
    exited = _EXITED.search(raised.text)
    # The main process learns of it when it waits for a batch; the signal is named one exception earlier.
    killed = _SIGNAL.search(raised.text) or (_SIGNAL.search(raised.traceback) if exited else None)
    if killed:
        signal = killed[2].strip()
        cause, remedy = _signal(signal)
        return Explained("DDP505", f"A DataLoader worker (process {killed[1]}) was killed: {cause}.", remedy)
    if exited:
        status = f" with status {exited[2]}" if exited[2] else ""
        return Explained(
            "DDP505",
            f"A DataLoader worker (process {exited[1].split(',')[0].strip()}) exited{status}.",
            "The data set or one of its libraries ended the process (os._exit, sys.exit in native code, a watchdog of "
            "the machine): run with num_workers=0 to see it in the main process.",
        )
    if raised.exception in _LOST and raised.passes("torch/utils/data/") and raised.passes("multiprocessing/"):
        return Explained(
            "DDP505",
            "A DataLoader worker died: the connection broke while it was passing a batch.",
            "Look at the end of the log for what ended it (a crash in native code, out of memory); run with num_workers=0 to "
            "see it in the main process.",
        )
    return None


_LOST = frozenset({"ConnectionResetError", "ConnectionRefusedError", "BrokenPipeError", "EOFError"})


def _signal(name: str) -> tuple[str, str]:
    if name == "Killed":
        return (
            "SIGKILL, as the kernel sends it where memory runs out",
            "Look at dmesg or the container's memory limit. Fewer workers, a smaller prefetch_factor, and no large Python "
            "lists in the data set (each worker gradually copies them: use arrays).",
        )
    if name in ("Segmentation fault", "Aborted", "Bus error", "Illegal instruction", "Floating point exception"):
        return (
            f"{name}, in native code",
            "Run with num_workers=0 and PYTHONFAULTHANDLER=1 to see where; open libraries used before the fork "
            '(OpenCV, HDF5, database handles) in the worker, or use multiprocessing_context="spawn".',
        )
    return name, "Find the sender: a job manager's limit on time or memory, or a shell that was closed."


def worker_slow(raised: Raised) -> Explained | None:
    if match := _SLOW.search(raised.text):
        return Explained(
            "DDP507",
            f"No DataLoader worker returned a batch within {match[1]} s.",
            "Check what the workers wait for (py-spy dump --pid of a worker): a lock held at the fork, a file system, a "
            "download. If they are only slow, use more workers, or a longer timeout= of the DataLoader.",
        )
    return None


_COLLATE = re.compile(r"default_collate: batch must contain tensors.{0,200}?found <class '([\w.]{1,80})'>")
_STACK = re.compile(
    r"stack expects each tensor to be equal size, but got (\[[\d, ]{0,200}\]) at entry (\d{1,9}) and (\[[\d, ]{0,200}\]) at entry (\d{1,9})"
)
_COLLATING = "torch/utils/data/_utils/collate"


def bad_sample(raised: Raised) -> Explained | None:
    """Samples that cannot be collated. Only errors of collate itself: stack is used everywhere."""
    text = raised.text
    remedy = (
        "Give every sample the same structure and size (pad, crop, or in a collate_fn); look at the sample on the "
        "rank that raised: other ranks have different samples."
    )
    if match := _COLLATE.search(text):
        what = "None" if match[1] == "NoneType" else match[1]
        return Explained("DDP508", f"The data set returned a sample that cannot be collated: {what}.", remedy)
    collating = raised.passes(_COLLATING)
    if collating and (match := _STACK.search(text)):
        return Explained("DDP508", f"Samples of one batch have different sizes: {match[1]} and {match[3]}.", remedy)
    if "each element in list of batch should be of equal size" in text:
        return Explained("DDP508", "Samples of one batch have different numbers of parts.", remedy)
    if collating and "Trying to resize storage that is not resizable" in text:
        return Explained("DDP508", "Samples of one batch have different sizes.", remedy)
    if collating and raised.exception == "KeyError" and len(text) < 200:
        return Explained("DDP508", f"Samples of one batch have different keys: {text} is not in all of them.", remedy)
    return None


RULES = (shared_memory, worker_died, worker_slow, bad_sample)
