"""However a log is posted, it gives no other answer than the plain log, but for less."""

from __future__ import annotations

import pytest

from ddpnb.errors import UsageError
from ddpnb.rules.diagnose import diagnose
from ddpnb.world.loading import load
from tests.reports.manglings import FAULTS, MANGLINGS, Fault, Mangle

#: of each kind one in each run of the tests
FEW = (
    "rank-date", "skypilot", "vllm", "torchx", "loguru", "cat-n", "indented", "quoted-fence", "wrapped-120", "tail-headings", "fluentd",
    "csv-newest-first", "utf-16-le-unmarked", "nul-first", "tar.xz", "zip-of-gz",
)  # fmt: skip


def answer(files: dict[str, bytes], folder) -> tuple[str, tuple[int, ...]] | None:
    """The code and the ranks of the first finding; None where nothing is found."""
    for name, data in files.items():
        (folder / name).write_bytes(data)
    try:
        errors = diagnose(load(folder)).errors
    except UsageError:
        return None
    sides = sorted(rank for side in errors[0].sides for rank in side) if errors else []
    return (errors[0].code, errors[0].culprits or tuple(sides)) if errors else None


def check(fault: Fault, mangle: Mangle, folder) -> None:
    assert answer(mangle(fault.lines), folder) == (fault.code, fault.culprits)


@pytest.mark.parametrize("name", FEW)
@pytest.mark.parametrize("fault", [FAULTS[0], FAULTS[2], FAULTS[3]], ids=lambda fault: fault.name)
def test_a_mangled_log_gives_the_same_answer(fault, name, tmp_path):
    check(fault, MANGLINGS[name], tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("name", MANGLINGS)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_every_mangled_log_gives_the_same_answer(fault, name, tmp_path):
    check(fault, MANGLINGS[name], tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("outer", ["kubectl-times", "containerd", "torchx", "quoted", "crlf", "cat-n"])
@pytest.mark.parametrize("inner", ["torchrun-tee", "mpirun", "ray-rank", "lightning", "rank-date"])
def test_two_prefixes(outer, inner, tmp_path):
    """A launcher's prefix behind that of a collector."""
    fault = FAULTS[2]
    ((_, data),) = MANGLINGS[inner](fault.lines).items()
    check(
        Fault("", [(None, line) for line in data.decode().splitlines()], fault.code, fault.culprits),
        MANGLINGS[outer],
        tmp_path,
    )
