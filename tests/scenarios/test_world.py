"""The facade: environment, runs one after the other, functions, restart, snapshot, closing."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

import ddpnb
from ddpnb.errors import CannotWrite, DdpnbError, DeviceError, LaunchError, ScriptNotFound, UsageError, WorldError
from tests.cli.commands import assert_no_own_frames
from tests.conftest import alive, processes_below

pytestmark = pytest.mark.world


def write(path, text):
    path.write_text(textwrap.dedent(text))
    return path


@pytest.mark.full
def test_environment_is_torchruns(world, tmp_path, forked):
    """The same variables with the same meaning, but for the agent's store, which is not there."""
    script = write(
        tmp_path / "show.py",
        """
        import json, os, sys
        names = [n for n in os.environ if n.split("_")[0] in ("RANK", "LOCAL", "GROUP", "ROLE", "WORLD", "MASTER",
                 "TORCHELASTIC", "OMP")]
        seen = {"argv": sys.argv, "main": __name__, "path": sys.path[0], "cwd": os.getcwd(), "file": __file__}
        with open(__file__ + os.environ["RANK"], "w") as file:
            json.dump(seen | {n: os.environ[n] for n in names}, file)
        """,
    )
    torchrun = "import sys\nfrom torch.distributed.run import main\nmain(sys.argv[1:])"
    done = forked.run(torchrun, "--nproc-per-node", "4", script, "a", "--b")
    assert done.returncode == 0, done.stderr
    theirs = [json.loads((tmp_path / f"show.py{rank}").read_text()) for rank in range(4)]
    world.run(script, "a", "--b", stream=None).wait(30)
    for rank in range(4):
        mine = json.loads((tmp_path / f"show.py{rank}").read_text())
        reference = theirs[rank]
        skipped = {"MASTER_PORT", "MASTER_ADDR", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_ERROR_FILE",
                   "TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_SIGNALS_TO_HANDLE"}  # fmt: skip
        for name in set(reference) - skipped:
            assert mine[name] == reference[name], name
        assert "TORCHELASTIC_USE_AGENT_STORE" not in mine


def test_ranks_in_order_and_results(world):
    def where(offset):
        import torch.distributed as dist

        dist.init_process_group("gloo")
        dist.barrier()
        return dist.get_rank() + offset

    run = world.run(where, 10, stream=None).wait(30)
    assert run.results == [10, 11, 12, 13]


def test_output_is_prefixed_and_kept_whole(world, tmp_path, capsys):
    script = write(tmp_path / "talk.py", "import os\nprint('x' * 10)\nos.system('echo from a child')\n")
    run = world.run(script, log_dir=tmp_path / "logs").wait(30)
    shown = capsys.readouterr().out
    for rank in range(4):
        assert f"[rank {rank}] xxxxxxxxxx\n" in shown
        assert (tmp_path / "logs" / f"rank{rank}.log").read_text() == "xxxxxxxxxx\nfrom a child\n"
    assert run.outcome == "ok"


def test_logs_of_an_earlier_run_are_kept(world, tmp_path):
    script = write(tmp_path / "s.py", "import sys\nprint(sys.argv[1])\n")
    for word in ("first", "second"):
        assert world.run(script, word, log_dir=tmp_path / "logs", stream=None).wait(60).outcome == "ok"
    assert (tmp_path / "logs" / "rank3.log").read_text() == "second\n"
    assert (tmp_path / "logs" / "rank3.log.1").read_text() == "first\n"


@pytest.mark.full
def test_a_hundred_megabytes(world, tmp_path):
    """25 MB per rank: kept whole, while nobody reads it."""
    script = write(tmp_path / "flood.py", "for i in range(250_000): print('%099d' % i)\n")
    run = world.run(script, stream=None).wait(60)
    assert run.outcome == "ok"
    assert len(run.log(2)) == 25_000_000


def test_exceptions_come_with_the_users_frames(world, tmp_path):
    write(tmp_path / "model.py", "def build():\n    return 1 / 0\n")
    script = write(tmp_path / "train.py", "import model\nmodel.build()\n")
    run = world.run(script, stream=None).wait(30)
    ending = run.endings[0]
    assert (run.outcome, run.exit_status) == ("crash", 1)
    assert [os.path.basename(frame.file) for frame in ending.frames] == ["train.py", "model.py"]
    assert_no_own_frames(ending.traceback)
    assert run.diagnosis.errors[0].culprits == (0, 1, 2, 3)


def test_a_script_that_does_not_compile(world, tmp_path):
    script = write(tmp_path / "broken.py", "x = 1\ndef f(:\n")
    run = world.run(script, stream=None).wait(30)
    assert run.outcome == "crash"
    assert run.endings[1].exception == "SyntaxError"
    assert run.diagnosis.errors[0].where[0][1].line == 2


def test_edited_modules_are_imported_anew(world, tmp_path):
    module = write(tmp_path / "part.py", "value = 1\n")
    script = write(tmp_path / "use.py", "import part\nprint(part.value)\n")
    assert world.run(script, stream=None).wait(30).log(0) == "1\n"
    time.sleep(0.01)
    module.write_text("value = 22\n")
    assert world.run(script, stream=None).wait(30).log(0) == "22\n"


def test_unseeded_random_numbers_are_fresh(world, tmp_path):
    """As in a process that was just started: another number on every rank, in every run."""
    script = write(tmp_path / "seed.py", "import torch\nprint(torch.rand(1).item())\n")
    runs = [world.run(script, stream=None).wait(30) for _ in range(2)]
    seen = {run.log(rank) for run in runs for rank in range(4)}
    assert len(seen) == 8


@pytest.mark.full
def test_the_ending_of_a_script_that_has_used_up_all_file_descriptors(world, tmp_path):
    script = """
        import os, resource, sys
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        sys.kept = []  # lives on after the script
        try:
            while True:
                sys.kept.append(os.open(os.devnull, os.O_RDONLY))
        except OSError:
            print(len(sys.kept) > 50)
    """
    try:
        run = world.run(write(tmp_path / "greedy.py", script), stream=None).wait(30)
        assert (run.outcome, [run.log(rank) for rank in range(4)]) == ("ok", ["True\n"] * 4), run.diagnosis
    finally:
        world.restart(range(4))


def test_snapshot_of_hung_ranks(world, victims, tmp_path):
    run = world.run(victims / "missing.py", "early_return", stream=None).wait(30)
    recording = world.snapshot()
    stack = recording.ranks[0].main_stack
    assert stack.innermost_user.function == "early_return"
    assert stack.innermost_user.locals["rank"] == "0"
    assert recording.ranks[0].in_flight[-1].op == "all_reduce"
    assert recording.ranks[1].ending.well
    assert [event.title for event in recording.ranks[0].history if event.state == "done"][:5] == [
        "environment",
        "device",
        "environment",
        "init_process_group",
        "store",
    ]
    assert run.outcome == "hang"
    world.save(tmp_path / "hang.ddpnb")
    loaded = ddpnb.load(tmp_path / "hang.ddpnb")
    assert [f.to_json() for f in ddpnb.diagnose(loaded).findings] == [f.to_json() for f in run.diagnosis.findings]
    assert loaded.ranks[0].main_stack.innermost_user == stack.innermost_user
    with pytest.raises(UsageError, match="is a folder"):
        world.save(tmp_path)


def test_a_hang_keeps_the_world_busy_until_restarted(world, victims):
    world.run(victims / "missing.py", "early_return", stream=None).wait(30)
    with pytest.raises(WorldError, match=r"Ranks 0, 2 and 3 are still in run"):
        world.run(victims / "alone.py")
    pids = world.pids()
    world.restart()
    assert world.pids() != pids
    assert {rank.state for rank in world.status().ranks} == {"idle"}  # not that of the former processes
    assert world.run(victims / "alone.py", stream=None).wait(30).outcome == "ok"


def test_ranks_that_died_are_replaced(world, tmp_path, victims):
    script = write(
        tmp_path / "die.py", "import os, signal\nif os.environ['RANK'] == '2': os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    run = world.run(script, stream=None).wait(30)
    assert (run.outcome, run.exit_status) == ("crash", 137)
    assert world.run(victims / "alone.py", stream=None).wait(30).outcome == "ok"


@pytest.mark.full
@pytest.mark.parametrize("times", [2, pytest.param(6, marks=pytest.mark.full)])
def test_a_rank_that_refuses_a_run_is_not_in_it(world, victims, times):
    world.execute("import ddpnb.recorder.rank as it\nit.start().arm = None", ranks=1, stream=None).wait(30)
    for _ in range(times):  # the second is not told that rank 1 is busy
        with pytest.raises(WorldError, match="rank 1 could not begin the run"):
            world.run(victims / "healthy.py", "rank_zero_work", stream=None).wait(30)
        freed = world.release()  # others look for a store that is no more, each time at another address
        assert not freed.left, freed
    world.restart(1)
    assert world.run(victims / "healthy.py", "rank_zero_work", stream=None).wait(60).outcome == "ok"


def test_a_rank_that_survives_as_a_black_box(world, tmp_path):
    """What a killed rank did last is read from its box."""
    script = write(
        tmp_path / "die.py",
        """
        import os, signal, torch, torch.distributed as dist
        dist.init_process_group("gloo")
        for step in range(7):
            dist.all_reduce(torch.ones(2))
        if dist.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        """,
    )
    run = world.run(script, stream=None).wait(30)
    record = run.recording.ranks[1]
    assert record.ending.code == -signal.SIGKILL
    assert (record.calls[-1].op, record.calls[-1].seq) == ("all_reduce", 7)


def leaves_a_call_to_itself():
    """Rank 0 waits by its own means for a call of which nothing will come."""
    import time

    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    dist.barrier()
    if dist.get_rank() == 0:
        work = dist.all_reduce(torch.ones(4), async_op=True)
        while not work.is_completed():
            time.sleep(0.01)
    dist.destroy_process_group()


@pytest.mark.full
def test_a_call_that_failed_while_nobody_waited_is_not_one_that_completed(world):
    """Torch calls both completed; DDP waits in C++, so what it waits for may fail so."""
    run = world.run(leaves_a_call_to_itself, stream=None).wait(30)
    last = run.recording.ranks[0].calls[-1]
    assert (last.op, last.state.name) == ("all_reduce", "FAILED")


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ({"n": 0}, UsageError),
        ({"n": -1}, UsageError),
        ({"n": "4"}, UsageError),
        ({"n": 2, "backend": "mpi"}, UsageError),
        ({"n": 2, "fence": "electric"}, UsageError),
        ({"n": 2, "patience": 0}, UsageError),
        ({"n": 2, "port": 99999999}, UsageError),
    ],
)
def test_wrong_use_of_launch(how, error):
    with pytest.raises(error):
        ddpnb.launch(quiet=True, **how)


def test_unknown_keywords_are_refused(world, victims):
    with pytest.raises(TypeError):
        ddpnb.launch(2, worldsize=3)
    with pytest.raises(TypeError):
        world.run(victims / "alone.py", logdir="x")


def test_wrong_use_of_run(world, tmp_path):
    with pytest.raises(ScriptNotFound):
        world.run(tmp_path / "nope.py")
    with pytest.raises(ScriptNotFound, match="is a folder"):
        world.run(tmp_path)
    with pytest.raises(UsageError):
        world.run(42)
    with pytest.raises(UsageError):
        world.restart(9)


@pytest.mark.parametrize("folder", ["/proc", "/proc/logs"])
def test_logs_that_cannot_be_written_are_refused(world, folder):
    """A folder that exists and takes no file, as on a disk that can only be read, and one that cannot be made."""
    with pytest.raises(UsageError, match="cannot write logs to"):
        world.run(str, log_dir=folder, stream=None)
    assert world.run(str, stream=None).wait(60).outcome == "ok"


def test_no_room_for_the_files_of_a_run(world, monkeypatch):
    """It is an error of ours, and the ranks are free afterwards."""
    with monkeypatch.context() as full:
        full.setattr(world._ranks.folders, "ending", lambda run, rank: f"/proc/run{run}-rank{rank}.json")
        with pytest.raises(CannotWrite, match="run .* cannot begin: cannot write to /proc"):
            world.execute("1", ranks=[0], stream=None)
        full.setattr(world._ranks.folders, "log_dir", lambda run: f"/proc/run{run}")
        with pytest.raises(CannotWrite, match="start-up cannot begin"):
            world.init()
        with pytest.raises(UsageError, match="cannot write logs to"):
            world.execute("1", stream=None)
    assert world.run(str, stream=None).wait(60).outcome == "ok"


def test_a_port_in_use():
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(UsageError, match="cannot be used"):
            ddpnb.launch(2, port=taken.getsockname()[1], quiet=True)


@pytest.mark.full
def test_closed_and_dead_worlds(victims, forks):
    world = ddpnb.launch(1, quiet=True, fork=forks)
    pids = world.pids()
    assert world.run(victims / "alone.py", stream=None).wait(30).outcome == "ok"
    os.killpg(world._ranks.processes._cluster.controller.pid, signal.SIGKILL)
    deadline = time.monotonic() + 240
    while world._ranks.processes.connection != "lost" and time.monotonic() < deadline:
        time.sleep(0.05)
    with pytest.raises(WorldError, match="controller"):
        world.run(victims / "alone.py")
    world.close()
    world.close()
    assert not any(map(alive, pids))
    with pytest.raises(WorldError, match="closed"):
        world.run(victims / "alone.py")
    del world
    gc.collect()


def test_an_engine_that_never_comes_up(monkeypatch, tmp_path):
    """Everything that was started is stopped, and the log's end is shown."""
    broken = tmp_path / "sitecustomize.py"
    broken.write_text("import os, sys\nif os.environ.get('RANK') == '1': sys.exit('no such device')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    before = processes_below()
    with pytest.raises(LaunchError, match="rank 1"):
        ddpnb.launch(2, quiet=True)
    assert processes_below() <= before


@pytest.mark.full
def test_many_worlds_in_one_process(world, victims, forks):
    with ddpnb.launch(2, quiet=True, fork=forks) as other:
        mine = world.run(victims / "healthy.py", "same_ranks_twice", stream=None)
        theirs = other.run(victims / "alone.py", stream=None)
        assert (mine.wait(30).outcome, theirs.wait(30).outcome) == ("ok", "ok")


def test_nothing_survives_the_death_of_the_launcher(forks):
    """Killed with SIGKILL, with a rank stopped: the kernel ends the ranks all the same."""
    code = f"""
        import os, signal, sys, time
        import ddpnb
        world = ddpnb.launch(2, quiet=True, fork={forks})
        os.kill(world.pids()[1], signal.SIGSTOP)
        controller = world._ranks.processes._cluster.controller.pid
        print(*world.pids(), controller, flush=True)
        time.sleep(60)
    """
    launcher = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True)
    pids = [int(pid) for pid in launcher.stdout.readline().split()]
    assert len(pids) == 3 and all(map(alive, pids))
    launcher.kill()
    launcher.wait()
    launcher.stdout.close()
    deadline = time.monotonic() + 240
    while any(map(alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(alive, pids))


def test_errors_explain_themselves():
    error = UsageError("what", "hint")
    assert isinstance(error, DdpnbError) and str(error) == "what\n  hint"
    assert error._render_traceback_() == ["UsageError: what\n  hint"]
    assert issubclass(DeviceError, UsageError)
