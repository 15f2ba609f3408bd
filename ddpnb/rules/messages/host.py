"""DDP705: a host resource is exhausted."""

from __future__ import annotations

import re

from ddpnb.rules.messages.explained import Explained, Raised

_FILES = re.compile(r"Too many open files|received \d{1,6} items of ancdata")
_NCCL_SHARED = re.compile(r"Error while creating shared memory segment (/dev/shm/nccl-\w{1,60})")
_DISK = re.compile(
    r"\[Errno (?:28|122|27)\] (No space left on device|Disk quota exceeded|File too large)|^No space left on device"
)
_WRITER = re.compile(
    r"PytorchStreamWriter failed writing|inline_container\.cc:\d{1,6}\] ?\.? ?unexpected pos \d|basic_ios::clear: iostream error"
)
_THREADS = re.compile(
    r"can't start new thread|Thread creation failed: Resource temporarily unavailable|pthread_create failed for thread"
    r"|pthread_create: Resource temporarily unavailable"
)
_PATH = re.compile(r"'([^'\n]{1,300})'")
_FORKS = ("fork", "_launch", "_fork_exec", "_execute_child", "spawnv_passfds", "Popen")


def exhausted(raised: Raised) -> Explained | None:
    text = raised.text
    if _FILES.search(text):
        return Explained(
            "DDP705",
            "Too many open files: the process reached its limit.",
            "Raise the limit (ulimit -n 65536), "
            'torch.multiprocessing.set_sharing_strategy("file_system"), and do not keep batches of workers in a list (clone them).',
            ("Every tensor passed by a DataLoader worker takes a file descriptor, and so does every connection.",),
        )
    if match := _NCCL_SHARED.search(text):
        return Explained(
            "DDP705",
            f"NCCL cannot allocate in /dev/shm ({match[1]}).",
            "Give the container more shared memory: docker run --shm-size=8g (or --ipc=host).",
        )
    if (match := _DISK.search(text)) or _WRITER.search(text):
        path = _PATH.search(text)
        where = f" to {path[1]}" if path else ""
        what = {"Disk quota exceeded": "The disk quota", "File too large": "The file size limit (ulimit -f)"}
        return Explained(
            "DDP705",
            f"{what.get(match[1] or '' if match else '', 'The disk')} is {'exceeded' if match and match[1] in what else 'full'}: the write{where} failed.",
            "Free space (df -h, df -i; old checkpoints, caches), write on one rank only, and write to a temporary file that "
            "is renamed when complete, so that a full disk leaves no partial checkpoint.",
            () if match else ("torch raises this when a file that it writes ends up too short.",),
        )
    if _THREADS.search(text) or (raised.exception == "RuntimeError" and text == "Resource temporarily unavailable"):
        return _processes("thread")
    forking = raised.calls(*_FORKS) or "fork(" in raised.user_line
    if forking and raised.exception in ("BlockingIOError", "OSError"):
        if "[Errno 11]" in text:
            return _processes("process")
        if "[Errno 12]" in text:
            return Explained(
                "DDP705",
                "Out of memory while starting another process.",
                "Use fewer DataLoader workers, started before large tensors are created; check free -m and the container's limit.",
            )
    return None


def _processes(what: str) -> Explained:
    return Explained(
        "DDP705",
        f"Could not start another {what}: the limit on threads and processes is reached.",
        "Set OMP_NUM_THREADS=1 (ranks times threads should not exceed the cores), use fewer DataLoader workers, and raise "
        "the limit: ulimit -u, the container's pids limit.",
        ("Every rank starts threads for each library and for each worker.",),
    )


RULES = (exhausted,)
