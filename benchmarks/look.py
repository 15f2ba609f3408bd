"""How long a look at a rank holds the interpreter: ``python -m benchmarks.look``.

A look describes the variables of the user's frames on a thread beside the training, with the interpreter lock held.
Each row is one kind of local variable: the median time of several looks, beside what ``repr`` and ``reprlib``
take for the same value. Times are of the processor, so that a busy machine does not change them.
"""

from __future__ import annotations

import random
import reprlib
import statistics
import threading
import time
from collections.abc import Callable
from typing import Any

from ddpnb.recorder.channel import threads

LOOKS = 9
MILLION = 1_000_000


def _million_strings() -> dict[str, int]:
    return {f"word {n}": n for n in range(MILLION)}


def _words() -> dict[str, int]:
    names = [f"word {n}" for n in range(50_000)]
    random.Random(0).shuffle(names)
    return {name: place for place, name in enumerate(names)}


def _gigabyte() -> list[Any]:
    """Containers of one gigabyte in all."""
    return [_million_strings(), set(_million_strings()), list(map(float, range(8 * MILLION))), bytes(300 << 20)]


#: kind -> how to make it, and whether repr() of it is quick enough to be compared with
KINDS: dict[str, tuple[Callable[[], Any], bool]] = {
    "a number": (lambda: 1, True),
    "bytes of 100 MB": (lambda: bytes(100 << 20), True),
    "dict of 1,000,000 strings": (_million_strings, True),
    "set of 1,000,000 strings": (lambda: set(_million_strings()), True),
    "vocabulary of 50,000 words": (_words, True),
    "int of 1,000,000 digits": (lambda: 1 << 3_321_928, False),
    "list of six such dicts": (lambda: [_million_strings()] * 6, False),
    "1 GB of containers": (_gigabyte, False),
}


def _timed(work: Callable[[], object]) -> float:
    began = time.thread_time()
    work()
    return time.thread_time() - began


def look_at(value: Any, levels: int = 0) -> float:
    """The median time of a look at a main thread that holds the value, so many calls deep."""
    looks: list[float] = []

    def down(left: int) -> None:
        held = value  # what the look describes
        if left:
            down(left - 1)
            return
        looker = threading.Thread(target=lambda: looks.extend(_timed(threads.stacks) for _ in range(LOOKS)))
        looker.start()
        looker.join()
        del held

    down(levels)
    return statistics.median(looks)


def look_beside(count: int) -> float:
    """The median time of a look at a process of so many threads."""
    stop = threading.Event()
    others = [threading.Thread(target=stop.wait) for _ in range(count)]
    for thread in others:
        thread.start()
    try:
        return look_at(1)
    finally:
        stop.set()
        for thread in others:
            thread.join()


def _row(name: str, *times: float | None) -> None:
    print(f"{name:30}" + "".join(f"{'not tried' if t is None else f'{t * 1e3:.2f} ms':>13}" for t in times))


def main() -> None:
    """Print the table."""
    print(f"{'local variable':30}{'look':>13}{'repr':>13}{'reprlib':>13}")
    for name, (make, quick) in KINDS.items():
        value = make()
        others = [_timed(lambda: tell(value)) if quick else None for tell in (repr, reprlib.repr)]
        _row(name, look_at(value), *others)
    _row("800 frames deep", look_at(1, levels=800))
    _row("2,000 threads", look_beside(2000))


if __name__ == "__main__":
    main()
