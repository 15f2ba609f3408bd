"""``make gpu``: the tests that need a GPU, and with several GPUs those that need several."""

from __future__ import annotations

import sys

import pytest

from ddpnb.ranks.devices import count_gpus


def chosen(count: int) -> tuple[str, str]:
    """The tests to run with so many GPUs, by their markers, and what is said of it."""
    if not count:
        return "", "make gpu: torch sees no CUDA device here, so no test was run (docs/gpu.md)."
    if count == 1:
        return "gpu and not multigpu", "make gpu: one GPU; what needs several (multigpu, docs/gpu.md) is not run."
    return "gpu", f"make gpu: {count} GPUs; all tests that need one or several."


def main() -> int:
    markers, told = chosen(count_gpus())
    print(told, flush=True)
    return int(pytest.main(["-m", markers, "-p", "no:cacheprovider", *sys.argv[1:]])) if markers else 1


if __name__ == "__main__":
    sys.exit(main())
