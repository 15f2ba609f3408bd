"""``ddpnb attach`` and ``ddpnb.attach``: a job that somebody else has started."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import pytest

import ddpnb as package
from ddpnb.cli import main
from ddpnb.errors import UsageError, WorldError
from tests.cli.commands import assert_all_ended, begin, said_until
from tests.cli.jobs import TORCHRUN, end, spawn, wait_for_job


@pytest.mark.full
@pytest.mark.parametrize(
    ("launcher", "says"),
    [
        pytest.param(spawn("skip"), "ddpnb.errors.Released: released by job.release().", id="spawn"),
        pytest.param([*TORCHRUN, "train.py", "skip"], "ddpnb: released by job.release().", id="torchrun"),
    ],
)
def test_a_hung_job_is_kept_attached_to_and_released(job, cli, launcher, says):
    process = begin("run", "--keep", "--", *launcher, cwd=job)
    try:
        found = wait_for_job(process, {0})  # rank 1 ends soon
        assert found.folder in cli("attach").stdout
        with package.attach(process.pid) as attached:
            attached.run.wait(60)
            assert attached.diagnosis.outcome == "hang", str(attached.diagnosis)
            assert (attached.size, attached.folder) == (2, found.folder)
            assert attached.status()[0].state == "waiting"
            assert attached.evaluate("step").values_by_rank[0] == 4
            assert attached.snapshot().ranks[0].main_stack.innermost_user.function == "train"
            with pytest.raises(WorldError, match="environment of a new start"):
                attached.inject("wrong port", ranks=1)
        said = said_until(process, "ddpnb.attach(")  # else it would end before the run has seen why
        shown = cli("attach", "--stacks", "--release", "--json", "a.json", found.ranks[0], cwd=job)
        assert (shown.returncode, "steps.py" in shown.stdout) == (3, True)
        assert json.loads((job / "a.json").read_text())["findings"][0]["code"] == "DDP301"
        assert "Rank 0 is released" in shown.stdout
        said += process.communicate(timeout=240)[1]
    finally:
        end(process)
    assert process.returncode == 3, said
    assert f'ddpnb.attach("{found.folder}")' in said
    assert says in said
    assert_all_ended(process, list(found.ranks.values()))


@pytest.mark.full
def test_a_rank_that_the_fence_stops_is_kept_too(tmp_path, cli):
    """Its peer, which has entered another call, would lose the connection if it ended."""
    (tmp_path / "s.py").write_text(
        "import torch, torch.distributed as dist\ndist.init_process_group('gloo')\n"
        "dist.all_reduce(torch.ones(4 + dist.get_rank()))\n"
    )
    process = begin("run", "--keep", "-n", 2, "--fork", "s.py", cwd=tmp_path)
    try:
        said = said_until(process, "It ends with its processes")
        assert "DDP303" in said and "ddpnb: the job is kept. In another terminal:" in said
        found = wait_for_job(process)
        shown = cli("attach", "--stacks", "--release", found.folder)
        assert shown.returncode == 3 and shown.stdout.count("s.py:3") >= 3, shown.stdout
        assert "Ranks 0 and 1 are released" in shown.stdout
        said += process.communicate(timeout=240)[1]
    finally:
        end(process)
    assert process.returncode == 3, said
    assert_all_ended(process, list(found.ranks.values()))


def test_a_running_job_is_held_stepped_and_released(job):
    process = begin("run", "--", *spawn("long"), cwd=job)
    try:
        found = wait_for_job(process)
        with package.attach(found) as attached:
            attached.hold()
            deadline = time.monotonic() + 240
            while (held := attached.status().held) != (0, 1) and time.monotonic() < deadline:
                time.sleep(2)
                if attached.status().held == held != (0, 1):  # the other had entered its call: it waits for this one
                    attached.step(ranks=held)
            before = attached.evaluate("step").values_by_rank
            attached.step(3)
            after = attached.evaluate("step").values_by_rank
            assert {rank: after[rank] - before[rank] for rank in (0, 1)} == {0: 3, 1: 3}
            attached.resume()
            assert "running" in repr(attached)
            assert attached.release().ranks == (0, 1)
            process.communicate(timeout=240)
            with pytest.raises(WorldError, match=r"(?s)this job has ended.*Start it again"):
                attached.evaluate("step", ranks=1)
    finally:
        end(process)
    assert_all_ended(process, list(found.ranks.values()))


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("no-such-folder", "no job is at 'no-such-folder': it has ended"),
        (".", "no rank of . runs"),
        ("99999999", "there is no process 99999999"),
    ],
)
def test_wrong_use(target, says, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    assert main(["attach", target]) == 2
    assert says in capfd.readouterr().err


@pytest.mark.parametrize("target", [True, 1.5, None, [1]])
def test_attach_takes_a_folder_or_a_process(target):
    with pytest.raises(UsageError, match="takes a folder or a process ID"):
        package.attach(target)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process of another user")
def test_a_process_of_another_user_is_refused(job):
    """Root may read it; another user may not, which this one plays."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as other:
        try:
            code = f"import os, ddpnb; attach = ddpnb.attach; os.setgid(65534); os.setuid(65534); attach({other.pid})"
            done = subprocess.run(
                [sys.executable, "-c", code], capture_output=True, text=True, timeout=240, check=False
            )
        finally:
            other.kill()
    assert f"process {other.pid} belongs to another user" in done.stderr


@pytest.mark.full
def test_ranks_of_a_job_are_held_stepped_and_looked_at_from_a_terminal(job, cli):
    """What one command has stopped, another one steps, and a third lets go: the ranks keep it."""
    process = begin("run", "--fork", "-n", "2", "train.py", "long", cwd=job)
    try:
        found = wait_for_job(process)
        line = 1 + next(
            number for number, text in enumerate((job / "steps.py").read_text().splitlines()) if "total = " in text
        )
        where = ("attach", found.folder)
        held = cli(
            *where, "--hold", f"steps.py:{line}", "--when", "step > 20", "--ranks", "1", "--evaluate", "step > 20"
        )
        assert held.returncode == 0, held.stderr
        assert "held before the line at" in held.stdout and f"steps.py:{line} in train" in held.stdout
        assert "True" in held.stdout
        with package.attach(found.folder, patience=1) as attached:
            assert attached.status().held == (1,)
            assert attached.step(how="over", timeout=60)[1].site.line == line + 1
            time.sleep(1.5)  # longer than patience
            assert not attached.diagnosis.errors and attached.run.outcome == "running"
        assert "no code at line" in cli(*where, "--hold", "steps.py:1000").stderr
        assert "--when go with" in cli(*where, "--when", "step").stderr
        assert cli(*where, "--ranks", "1", "--step", "over", "--timeout", "60").returncode == 0
        freed = cli(*where, "--unhold", "--resume")
        assert freed.returncode == 0 and "held before" not in freed.stdout, freed.stdout
        assert "is not held" in cli(*where, "--step", "over", "--ranks", "0").stderr
    finally:
        end(process)
    assert_all_ended(process, list(found.ranks.values()))
