"""Full disks, many ranks, wrong use, and worlds that come and go."""

from __future__ import annotations

import json
import resource

import psutil
import pytest

import ddpnb
from ddpnb.errors import DdpnbError
from ddpnb.recording.blackbox import BOX_SIZE
from ddpnb.recording.samples import FILE_SIZE
from tests.torture.harness import until
from tests.torture.test_hostile import TRAIN

pytestmark = [pytest.mark.torture, pytest.mark.timeout(400)]
HANG = TRAIN + "if dist.get_rank() != 1: dist.all_reduce(torch.ones(4))\n"
RANK_BYTES = 400 << 20  # of memory, with torch


def limit_files(size):
    """Every file that is written may be so large: what a full disk does, without one."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


NO_PLACE = "no folder has enough space for the shared files of 2 ranks"


@pytest.mark.parametrize(("size", "status", "says"), [
    (0, 1, ""), (4096, 1, NO_PLACE), (4 << 20, 1, NO_PLACE),  # smaller than a box
    (6 << 20, 1, NO_PLACE),  # smaller than what a rank says of its replicas
    (9 << 20, 1, "File too large"),  # smaller than the output of a rank
    (16 << 20, 0, "xxx"),  # smaller than the output of both, which is shown as far as it goes
    (32 << 20, 0, "xxx"),
], ids=["nothing", "4 KiB", "4 MiB", "6 MiB", "9 MiB", "16 MiB", "32 MiB"])  # fmt: skip
def test_no_room_for_files(command, tmp_path, size, status, says):
    assert 4 << 20 < BOX_SIZE < 6 << 20 < FILE_SIZE < 9 << 20
    (tmp_path / "program.py").write_text(TRAIN + "print('x' * 10_000_000)\n")
    started = command("run", "-n", "2", "program.py", prepare=limit_files(size))
    assert started.end() == status, started.said[-3000:]
    assert says in started.said and (size or not started.said)  # not even a message fits into nothing
    started.left_nothing()


@pytest.mark.parametrize("path", ["/dev/full", "/proc/verdict.json", "verdict.json/"])
def test_no_room_for_the_verdict(command, tmp_path, path):
    (tmp_path / "program.py").write_text(TRAIN)
    started = command("run", "-n", "1", "--json", path, "program.py")
    assert started.end() in (1, 2) and "ddpnb: " in started.said, started.said
    assert not [one.name for one in tmp_path.iterdir() if one.name.endswith(".part")]
    started.left_nothing()


@pytest.mark.parametrize("ranks", [8, 16])
@pytest.mark.parametrize(("program", "status"), [(TRAIN, 0), (HANG, 3)], ids=["healthy", "hang"])
def test_many_ranks(command, tmp_path, ranks, program, status):
    if psutil.virtual_memory().available < ranks * RANK_BYTES:
        pytest.skip("too little memory")
    (tmp_path / "program.py").write_text(program)
    started = command("run", "-n", ranks, "--json", "verdict.json", "program.py")
    assert started.end(300) == status, started.said[-3000:]
    if status:
        first = json.loads((tmp_path / "verdict.json").read_text())["findings"][0]
        assert first["culprits"] == [1]
    started.left_nothing()


@pytest.mark.parametrize("arguments", [["-n", "99999999"], ["-n", "-1"], ["-n", "1e3"], ["--patience", "nan"], ["--scaling", "1,x"]])  # fmt: skip
def test_wrong_options(command, tmp_path, arguments):
    (tmp_path / "program.py").write_text("")
    started = command("run", *arguments, "program.py")
    assert started.end(30) == 2, started.said
    started.left_nothing()


def test_worlds_come_and_go():
    for _ in range(5):
        with ddpnb.launch(2, quiet=True) as world:
            pids = world.pids()
            assert world.run(lambda: 7, stream=None).wait(60).results == [7, 7]
        until("the ranks have ended", lambda pids=pids: not any(map(psutil.pid_exists, pids)), 15)


@pytest.mark.parametrize(
    ("name", "arguments", "options"),
    [
        ("run", (5,), {}), ("run", ("nowhere.py",), {}), ("run", (lambda: 1,), {"patience": "x"}), ("hold", (5,), {}),
        ("inject", (5,), {}), ("inject", ("skip",), {"ranks": 99}), ("step", ("x",), {}), ("execute", ("def (",), {}),
        ("execute", (5,), {}), ("restart", ("x",), {}), ("restart", (99,), {}), ("evaluate", ("def",), {}),
        ("release", ("x",), {}), ("release", (float("nan"),), {}),
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.usefixtures("world")
def test_wrong_calls(world, name, arguments, options):
    with pytest.raises(DdpnbError):
        getattr(world, name)(*arguments, **options)


@pytest.mark.parametrize("options", [{"n": 0}, {"n": "two"}, {"n": 2, "backend": 5}, {"n": 2, "patience": float("nan")}, {"n": 2, "fence": 1}])  # fmt: skip
def test_wrong_launches(options):
    with pytest.raises(DdpnbError):
        ddpnb.launch(**options).close()
