"""A real hang by MCP over stdio: the steps of the skill file, followed by a program, give culprit, line and fix."""

from __future__ import annotations

import asyncio
import os
import sys
import time

import psutil
import pytest

mcp = pytest.importorskip("mcp")

from ddpnb.recording import protocol  # noqa: E402
from tests import stepped  # noqa: E402
from tests.agents.conversation import held  # noqa: E402
from tests.cli import jobs  # noqa: E402
from tests.conftest import alive, processes_below  # noqa: E402


def server(folder, *options):
    """Replicas are looked at in every step: else in fewer, the busier the machine is."""
    keys = ("PATH", "HOME", "DDPNB_SHM", "TMPDIR", "PYTHONPATH")
    env = {key: os.environ[key] for key in keys if key in os.environ} | {protocol.LOOKS: "0..9999"}
    return mcp.StdioServerParameters(
        command=sys.executable, args=["-m", "ddpnb", "mcp", *options], cwd=str(folder), env=env
    )


def line_of(folder, text):
    return next(n for n, line in enumerate((folder / "steps.py").read_text().splitlines(), 1) if text in line)


def below():
    return {process.pid for process in processes_below()}


def assert_ended(pids):
    deadline = time.monotonic() + 40
    while any(map(alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not [pid for pid in pids if alive(pid)]


async def answered(client, name, **given):
    said = await client.call_tool(name, given, read_timeout_seconds=90)
    assert not said.is_error, said.content[0].text
    return said.structured_content


async def followed(client, job):
    """The steps of the skill file: what an agent knows at the end."""
    listed = await answered(client, "jobs")
    assert "run1" in listed["started"]
    assert os.getcwd() in [row["data"]["directory"] for row in listed["jobs"]]
    found = await answered(client, "diagnose", job=job)
    first = found["findings"][0]
    parted = await answered(client, "partings", job=job)
    variables = await answered(client, "variables", job=job)
    stacks = await answered(client, "stacks", job=job)
    page = await answered(client, "explain", what=first["code"])
    report = await answered(client, "report", job=job)
    refused = await client.call_tool("variables", {"job": job, "expression": "1 / 0"})
    assert refused.is_error and "--evaluate" in refused.content[0].text
    assert variables["data"]["function"] == "train" and stacks["stacks"]
    return found, parted["partings"][0], page["pages"][0], report


@pytest.mark.full
def test_the_steps_of_the_skill_file_lead_to_culprit_line_and_fix(tmp_path, monkeypatch):
    """Nothing is left when the client then goes away."""
    folder = jobs.write(tmp_path)
    monkeypatch.chdir(folder)
    others = below()

    async def conversation():
        async with mcp.Client(server(folder, "--control")) as client:
            started = await answered(client, "run", command=jobs.spawn("skip"), wait=60)
            assert started["state"] == "kept", started
            return await followed(client, started["job"]), below() - others

    (found, parting, page, report), processes = held(conversation())
    first = found["findings"][0]
    assert (found["outcome"], first["code"], first["certainty"]) == ("hang", "DDP301", "proven")
    assert first["culprits"] == [1]
    assert parting["data"]["line"] == line_of(folder, 'mode == "skip":')
    assert (1,) in {tuple(way["ranks"]) for way in parting["data"]["ways"]}
    assert first["data"]["remedy"] and "barrier" in page["fix"]
    assert "DDP301" in report["data"]["text"]
    assert len(processes) >= 4  # the server, the command, its launcher, a rank
    assert_ended(processes)


@pytest.mark.full
def test_two_clients_look_at_one_job_which_ends_meanwhile(tmp_path):
    folder = jobs.write(tmp_path)

    async def conversation():
        async with mcp.Client(server(folder, "--control")) as client, mcp.Client(server(folder)) as second:
            started = await answered(client, "run", command=jobs.spawn("skip"), wait=60)
            assert started["state"] == "kept", started
            attached = await answered(client, "attach", job=started["job"])
            theirs = str(attached["job"]["pids"][0])
            found = await answered(second, "diagnose", job=theirs)
            assert "released" in (await answered(client, "release", job=started["job"]))["done"]
            ended = await client.call_tool("status", {"job": started["job"]})
            assert ended.is_error and "ended" in ended.content[0].text
            gone = await second.call_tool("variables", {"job": theirs})
            assert gone.is_error and "has ended" in gone.content[0].text
            return found, await answered(client, "diagnose", job=started["job"])

    found, after = held(conversation())
    assert [one["code"] for one in found["findings"]] == [one["code"] for one in after["findings"]] == ["DDP301"]


async def known(client, job, fits, tool="status", **given):
    """The status of a job, or what another tool says, once it fits."""
    for _ in range(600):
        said = await client.call_tool(tool, {"job": job, **given}, read_timeout_seconds=90)
        if fits(said):
            return said
        await asyncio.sleep(0.2)
    raise AssertionError(said.content[0].text)


async def held_once_joined(client, job, **given):
    """The ranks that a hold stops of a job that may still start."""
    said = await known(client, job, lambda said: not said.is_error, "hold", **given)
    return said.structured_content["held"]


@pytest.mark.full
def test_a_training_that_an_agent_has_stopped_in_a_step_ends_with_the_same_numbers(tmp_path):
    """Stop rank 1 in a step, see why its value differs, step three lines, let all continue."""
    folder, undisturbed = tmp_path / "job", stepped.plain(tmp_path / "plain")
    folder.mkdir()
    (folder / "stepped.py").write_text(stepped.SCRIPT)
    lines = stepped.SCRIPT.splitlines()

    async def conversation():
        async with mcp.Client(server(folder, "--control", "--evaluate")) as client:
            job = (await answered(client, "run", command=["stepped.py"], nproc=2, wait=0))["job"]
            asked = {"line": f"stepped.py:{stepped.LINE}", "when": stepped.WHEN, "ranks": [1]}
            await held_once_joined(client, job, wait=0, **asked)
            (folder / "go").touch()
            await known(client, job, lambda said: said.structured_content["held"] == [1])
            await known(client, job, lambda said: said.structured_content["ranks"][0]["state"] == "waiting")
            shown = await answered(client, "variables", job=job)
            rows = {row["data"]["name"]: row for row in shown["variables"]}
            assert rows["scale"]["differs"] and rows["scale"]["data"]["values"] == {"0": "1.0", "1": "2.0"}
            assert rows["number"]["data"]["values"] == {"0": "7", "1": "7"}
            for line in stepped.THEN:
                found = await answered(client, "step", job=job, how="over", ranks=[1], wait=30)
                assert found["held"] == [1]
                assert found["ranks"][1]["data"]["place"]["line"] == 1 + lines.index(f"    {line}")
            await answered(client, "resume", job=job)
            await known(client, job, lambda said: said.is_error and "ended with status 0" in said.content[0].text)
            return await answered(client, "diagnose", job=job)

    assert held(conversation())["outcome"] == "ok"
    assert stepped.numbers(folder) == undisturbed


@pytest.mark.full
def test_a_job_is_held_stepped_and_resumed_and_ends_with_a_server_that_is_killed(tmp_path):
    folder = jobs.write(tmp_path)
    others = below()

    async def conversation():
        async with mcp.Client(server(folder, "--control", "--evaluate")) as client:
            job = (await answered(client, "run", command=jobs.spawn("long"), wait=0))["job"]
            assert await held_once_joined(client, job, when="step % 2 == 0", wait=30) == [0, 1]
            before = await answered(client, "variables", job=job, expression="step")
            assert (await answered(client, "step", job=job, n=2, wait=30))["held"] == [0, 1]
            after = await answered(client, "variables", job=job, expression="step")
            values = [one["variables"][0]["data"]["values"] for one in (before, after)]
            assert [int(values[1][rank]) - int(values[0][rank]) for rank in ("0", "1")] == [2, 2]
            assert (await answered(client, "resume", job=job))["held"] == []
            at_line = await answered(client, "hold", job=job, line=f"steps.py:{line_of(folder, 'all_reduce')}", wait=30)
            assert at_line["held"] == [0, 1]
            assert (await answered(client, "step", job=job, how="over", wait=30))["held"] == [0, 1]
            assert (await answered(client, "resume", job=job))["held"] == []
            (parent,) = [one for one in psutil.Process().children() if "mcp" in one.cmdline()]
            processes = below() - others
            parent.kill()
            return processes

    assert_ended(held(conversation()))


TRAINING = """
import os, sys, time
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def train(model, optimizer, rank, mode):
    step, stop, data = 0, torch.zeros(1), torch.Generator().manual_seed(rank)
    while not stop:
        if mode == "slow" and rank == 1:
            time.sleep(0.4)
        loss = model(torch.randn(4, 8, generator=data)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        if mode == "edit" and rank == 1 and step == 5:
            model.module.bias.grad[0] += 0.5
        optimizer.step()
        step += 1
        time.sleep(0.02)
        stop = torch.tensor([float(os.path.exists("stop"))])
        dist.all_reduce(stop)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(8, 2))
    train(model, torch.optim.SGD(model.parameters(), 0.01), dist.get_rank(), sys.argv[1])
    dist.destroy_process_group()
"""


async def trained(client, folder, mode):
    """A training of two ranks, once it trains."""
    (folder / "training.py").write_text(TRAINING)
    (folder / "stop").unlink(missing_ok=True)
    job = (await answered(client, "run", command=["training.py", mode], nproc=2, wait=0))["job"]
    await known(client, job, lambda said: not said.is_error and said.structured_content["ranks"][1]["steps"] > 8)
    return job


async def finished(client, job, folder):
    """The diagnosis of a training that is allowed to end now."""
    (folder / "stop").touch()
    await known(client, job, lambda said: said.is_error and "ended" in said.content[0].text)
    return await answered(client, "diagnose", job=job)


@pytest.mark.full
def test_replicas_that_differ_lead_to_rank_and_line_while_they_train_and_the_fix_is_checked(tmp_path):
    line = 1 + next(n for n, text in enumerate(TRAINING.splitlines()) if 'mode == "edit"' in text)

    async def conversation():
        async with mcp.Client(server(tmp_path, "--control")) as client:
            job = await trained(client, tmp_path, "edit")
            found = await answered(client, "diagnose", job=job, wait=15)
            asked = [one.split(":")[0].split()[0] for one in found["next"]]
            assert asked[-2:] == ["compare", "explain"]
            compared = await answered(client, "compare", job=job)
            page = (await answered(client, "explain", what=found["findings"][0]["code"]))["pages"][0]
            after = await finished(client, job, tmp_path)
            report = await answered(client, "report", job=job)
            fixed = await trained(client, tmp_path, "fixed")
            return found, compared, page, after, report, await finished(client, fixed, tmp_path)

    found, compared, page, after, report, fixed = held(conversation())
    for said in (found, after):
        first = said["findings"][0]
        assert (said["outcome"], first["code"], first["culprits"]) == ("divergence", "DDP409", [1])
        assert line in [place["line"] for place in first["data"]["where"]] and first["data"]["remedy"]
    assert not found["settled"] and after["settled"]
    assert not compared["equal"] and {tuple(map(tuple, one["sides"])) for one in compared["differences"]} == {
        ((0,), (1,))
    }
    assert "synchronis" in page["fix"] + page["what"] and "DDP409" in report["data"]["text"]
    assert fixed["outcome"] == "ok" and not fixed["findings"]


@pytest.mark.full
def test_of_a_slow_training_that_works_it_says_so_and_ends_nothing(tmp_path):
    async def conversation():
        async with mcp.Client(server(tmp_path, "--control")) as client:
            job = await trained(client, tmp_path, "slow")
            found = [await answered(client, "diagnose", job=job, wait=5) for _ in range(2)]
            status = await answered(client, "status", job=job)
            await answered(client, "variables", job=job)
            stacks = await answered(client, "stacks", job=job)
            steps = [row["steps"] for row in status["ranks"]]
            await known(client, job, lambda said: said.structured_content["ranks"][1]["steps"] > steps[1] + 3)
            return found, status, stacks, await finished(client, job, tmp_path)

    found, status, stacks, after = held(conversation())
    for said in found:
        assert said["outcome"] == "ok" and {one["severity"] for one in said["findings"]} <= {"note"}
        assert {one["code"] for one in said["findings"]} <= {"DDP315"} and "explain" not in str(said["next"])
    assert status["outcome"] == "running" and status["held"] == []
    assert all("<ddpnb" not in frame["file"] for row in stacks["stacks"] for frame in row["data"])
    assert (after["outcome"], after["exit_codes"]) == ("ok", {"0": 0, "1": 0})
