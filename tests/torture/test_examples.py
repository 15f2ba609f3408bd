"""The examples of docs/hosts.md, run in a notebook on the login node of a simulated cluster, with its Slurm, SSH or MPI."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Collection, Iterator

import pytest

from tests.cluster import mpi, slurmd, sshd
from tests.cluster.cluster import Cluster, Notebook
from tests.cluster.slurm import Slurm, cpus_of_tasks
from tests.conftest import VICTIMS
from tests.docs.code_blocks import blocks_under
from tests.simulated_hosts import ROOT, end, missing, wait_until

pytestmark = [
    pytest.mark.torture,
    pytest.mark.timeout(300),
    pytest.mark.skipif(bool(missing()), reason=missing()),
]

HANG = VICTIMS / "missing.py"
SUM = "import torch, torch.distributed as dist\nwhole = torch.ones(1)\ndist.all_reduce(whole)\nwhole.item()"
OURS = ("/engines/child.py", "processes.remote import agent")  # in the command lines of ranks and agents


def example(heading: str, language: str, at: int = 0, /, **values: str) -> str:
    """A block of docs/hosts.md, with the values that name a user's cluster replaced; each must be there."""
    chosen = [one for one in blocks_under((ROOT / "docs/hosts.md").read_text(), heading) if one.language == language]
    return replaced(chosen[at].text, values)


def replaced(text: str, values: dict[str, str]) -> str:
    for old, new in values.items():
        assert old in text, f"{old!r} is not in the example:\n{text}"
        text = text.replace(old, new)
    return text


@pytest.fixture
def cluster(tmp_path) -> Iterator[Cluster]:
    with contextlib.closing(Cluster(tmp_path)) as cluster:
        yield cluster


@pytest.fixture
def slurm(cluster) -> Iterator[Slurm]:
    with contextlib.closing(Slurm(cluster, cluster.nodes, cluster.programs)) as slurm:
        yield slurm


def use(notebook: Notebook, cluster: Cluster, cpus: Collection[int] = os.sched_getaffinity(0)) -> None:
    """Use the world of an example as a notebook does, with two ranks on each node, which may use these CPUs."""
    notebook.cell("from tests.victims import hosts as victims")
    assert notebook.value("world.run(victims.cpus, stream=None).wait(60).results") == [sorted(set(cpus))] * 4
    where = notebook.value("[name for name, _ in world.run(victims.where, stream=None).wait(60).results]")
    assert where == [node for node in cluster.nodes for _ in range(2)]
    sums = "world.run(victims.sums, stream=None).wait(60).results"
    assert notebook.value(sums) == [10.0] * 4
    notebook.cell(f"run = world.execute({SUM!r}, stream=None).wait(60)")
    assert notebook.value("[run.outcome, *(run.log(rank).strip() for rank in range(4))]") == ["ok", *["4.0"] * 4]

    notebook.cell(f"run = world.run({str(HANG)!r}, 'early_return', stream=None, patience=3.0).wait(60)")
    said = notebook.cell("print(run.diagnosis)")
    notebook.cell("finding = run.diagnosis.errors[0]")
    assert notebook.value("[run.outcome, finding.code, *finding.culprits]") == ["hang", "DDP301", 1], said
    assert notebook.value("sorted(finding.waiting)") == [0, 2, 3], said
    assert notebook.value("[bool(run.recording.ranks[rank].stacks) for rank in (2, 3)]") == [True, True], said

    assert notebook.value("list(world.release().left)") == []
    assert notebook.value(sums) == [10.0] * 4


def close(notebook: Notebook, cluster: Cluster, engines: int, *, started: bool) -> None:
    """End as documented: nothing of ddpnb runs on the nodes when the world is closed, and the engines are still free.

    Args:
        notebook: with a world.
        cluster: its hosts.
        engines: how many engines there are.
        started: whether the notebook has started them.
    """
    world, client, stop = example("At the end", "python").splitlines()
    notebook.cell(world)
    wait_until("agents and ranks end", lambda: not ours(cluster))
    assert notebook.value("sorted(client[:].apply_sync(lambda: __import__('socket').gethostname()))") == sorted(
        cluster.nodes * (engines // 2)
    )
    notebook.cell(client)
    if started:
        notebook.cell(stop)


def ours(cluster: Cluster) -> list[str]:
    texts = [text for node in cluster.nodes for text in cluster.texts(node).values()]
    return [text for text in texts if any(part in text for part in OURS)]


# -- Slurm


@pytest.mark.world
def test_slurm(cluster, slurm):
    with cluster.notebook() as notebook:
        four = {"n=8": "n=4", "--ntasks-per-node=4": "--ntasks-per-node=2", "launch(8": "launch(4"}
        notebook.cell(replaced(example("Slurm", "python"), four))
        (job,) = slurm.queue
        assert dict(job.placed) == dict.fromkeys(cluster.nodes, 2)
        script = job.script.splitlines()
        assert script[0] == "#!/bin/sh" and script[-1].startswith("srun ") and " -m ipyparallel.engine" in script[-1]
        assert {"#SBATCH --ntasks=4", "#SBATCH --partition=gpu", "#SBATCH --time=1:00:00"} <= set(script)
        assert job.options["time"] == "1:00:00" and job.options["partition"] == "gpu"
        seen = notebook.value("client[:].apply_sync(lambda: __import__('os').environ['SLURM_PROCID'])")
        assert sorted(seen) == ["0", "1", "2", "3"]  # srun starts an engine for each task
        use(notebook, cluster, cpus_of_tasks(2))
        close(notebook, cluster, 4, started=True)
        cluster.wait_for_end("the job", *cluster.nodes)
        wait_until("the job is over", lambda: not slurm.queue)
    assert not slurm.refused
    cluster.wait_for_end("the notebook", cluster.login)


def test_a_job_that_is_cancelled_leaves_nothing(cluster, slurm):
    with cluster.notebook() as notebook:
        four = {"n=8": "n=4", "--ntasks-per-node=4": "--ntasks-per-node=2", "launch(8": "launch(4"}
        notebook.cell(replaced(example("Slurm", "python"), four))
        notebook.cell("from tests.victims import hosts as victims")
        notebook.cell("run = world.run(victims.paced, 600, stream=None, patience=3.0, end_after_patience=True)")
        cluster.run(cluster.login, "scancel", slurm.queue[0].number)
        cluster.wait_for_end("the job", *cluster.nodes)
        notebook.cell("run.wait(60)")
        assert notebook.value("[run.done, run.outcome == 'ok']") == [True, False]
        notebook.cell("world.close()")
    cluster.wait_for_end("the notebook", cluster.login)


@pytest.mark.parametrize("closed", [True, False])
def test_an_allocation_of_slurm(closed, cluster, slurm):
    allocation = example("Slurm", "sh", **{"--ntasks-per-node=4": "--ntasks-per-node=2"}).split()
    shell = example("Slurm", "sh", 1, **{"jupyter lab": "{}"})
    with cluster.notebook(*allocation, shell=shell) as notebook:
        notebook.cell(example("Slurm", "python", 1, **{"engines(8": "engines(4", "launch(8": "launch(4"}))
        use(notebook, cluster, cpus_of_tasks(2))
        if closed:
            close(notebook, cluster, 4, started=False)
    cluster.wait_for_end("the allocation", *cluster.names)
    wait_until("the job is over", lambda: not slurm.queue)
    assert not slurm.refused


@pytest.mark.skipif(bool(slurmd.missing()), reason=slurmd.missing())
@pytest.mark.parametrize("way", ["batch", "allocation"])
def test_a_real_slurm(way, cluster):
    """The programs of Slurm, which bind each task to a CPU of its own."""
    sizes = {"n=8": "n=4", "--ntasks-per-node=4": "--ntasks-per-node=2", "launch(8": "launch(4"}
    with contextlib.ExitStack() as stack:
        variables = stack.enter_context(slurmd.real_slurm(cluster))
        if way == "batch":
            notebook = stack.enter_context(cluster.notebook(env=variables))
            notebook.cell(replaced(example("Slurm", "python"), sizes))
        else:
            allocation = example("Slurm", "sh", **{"--ntasks-per-node=4": "--ntasks-per-node=2"}).split()
            shell = example("Slurm", "sh", 1, **{"jupyter lab": "{}"})
            notebook = stack.enter_context(cluster.notebook(*allocation, shell=shell, env=variables))
            notebook.cell(example("Slurm", "python", 1, **{"engines(8": "engines(4", "launch(8": "launch(4"}))
        bound = notebook.value("client[:].apply_sync(lambda: len(__import__('os').sched_getaffinity(0)))")
        assert bound == [1] * 4
        use(notebook, cluster, cpus_of_tasks(2))
        close(notebook, cluster, 4, started=way == "batch")
        if way == "allocation":
            notebook.shut_down()
        cluster.wait_for_end("the job", *cluster.nodes, keep=slurmd.KEEP)
        wait_until("the job is over", lambda: not queue(cluster, variables))


def queue(cluster: Cluster, variables: dict[str, str]) -> str:
    done = cluster.run(cluster.login, "squeue", "--noheader", env=variables)
    assert done.returncode == 0, done.stderr
    return done.stdout


# -- SSH


@pytest.mark.skipif(bool(sshd.missing()), reason=sshd.missing())
def test_ssh(cluster):
    nodes = dict(zip(('"node1"', '"node2"'), map('"{}"'.format, cluster.nodes), strict=True))
    with sshd.ssh_servers(cluster, cluster.nodes), cluster.notebook() as notebook:
        text = example("SSH", "python", **nodes, **{"/opt/train/bin/python": sys.executable, "launch(8": "launch(4"})
        notebook.cell(text)
        use(notebook, cluster)
        close(notebook, cluster, 2, started=True)
        cluster.wait_for_end("the engines", *cluster.nodes, keep=sshd.KEEP)
    cluster.wait_for_end("the notebook", cluster.login)


# -- MPI


@pytest.fixture
def hostfile(cluster):
    """``hosts``, and SSH, by which mpiexec reaches them."""
    (cluster.home / "hosts").write_text("".join(f"{node} slots=2\n" for node in cluster.nodes))
    with sshd.ssh_servers(cluster, cluster.nodes):
        yield


needs_mpi = pytest.mark.skipif(bool(sshd.missing() or mpi.missing()), reason=sshd.missing() or mpi.missing())


@needs_mpi
def test_mpi(cluster, hostfile):
    shell = example("MPI", "sh", **{"jupyter lab": "{}"})
    with cluster.notebook(shell=shell, env=mpi.AS_ROOT) as notebook:
        notebook.cell(example("MPI", "python", **{"launch(8": "launch(4"}))
        use(notebook, cluster)
        close(notebook, cluster, 2, started=False)
    cluster.wait_for_end("the notebook", cluster.login)
    cluster.wait_for_end("the engines", *cluster.nodes, keep=sshd.KEEP)


@needs_mpi
@pytest.mark.skipif(not mpi.has_mpi4py(), reason="needs mpi4py (pip install mpi4py)")
def test_mpi_from_the_notebook(cluster, hostfile):
    with cluster.notebook(env=mpi.AS_ROOT) as notebook:
        notebook.cell(example("MPI", "python", 1, **{"launch(8": "launch(4"}))
        use(notebook, cluster)
        close(notebook, cluster, 2, started=True)
        cluster.wait_for_end("the engines", *cluster.nodes, keep=sshd.KEEP)
    cluster.wait_for_end("the notebook", cluster.login)


# -- the prefix

TRAIN = """
import os
import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
for step in range(6):
    if step == 3 and dist.get_rank() == 3 and sys.argv[1:] == ["skip"]:
        continue
    total = torch.ones(4)
    dist.all_reduce(total)  # waiting
sys.stdout.write(f"{dist.get_rank()} of {total[0]:.0f} on {os.uname().nodename}\\n")
"""
PREFIX = "Jobs that something else starts"
PATIENT = {"ddpnb run": "ddpnb run --patience 60"}  # on a busy machine, ranks are not there within ten seconds


def run_job(cluster: Cluster, *command: str, env: dict[str, str]) -> tuple[int, str, str]:
    """Run a command on the login node, in the home folder: its status, output and errors."""
    (cluster.home / "train.py").write_text(TRAIN)
    done = cluster.run(cluster.login, "env", f"--chdir={cluster.home}", *command, env=env)
    cluster.wait_for_end("the job", *cluster.names, keep=(*slurmd.KEEP, *sshd.KEEP))
    return done.returncode, done.stdout, done.stderr


def check_job(cluster: Cluster, mode: str, status: int, output: str, said: str) -> None:
    told = [line for line in said.splitlines() if line.startswith(("ddpnb:", "Rank"))]
    if mode == "skip":
        assert status == 3 and told[0].startswith("ddpnb: hang"), said
        line = TRAIN[: TRAIN.index("  # waiting")].count("\n") + 1
        assert (
            f"Rank 3 never calls the all_reduce that ranks 0, 1 and 2 are blocked in at train.py:{line}" in told[1]
        ), said
    else:
        assert (status, [line.partition(" ranks")[0] for line in told]) == (0, ["ddpnb: ok: 4"]), said
        assert sorted(line.split()[2] for line in output.splitlines() if " of 4 on " in line) == ["4"] * 4, output
        assert all(output.count(node) == 2 for node in cluster.nodes), output


@pytest.mark.parametrize("mode", ["", "skip"])
@pytest.mark.skipif(bool(slurmd.missing()), reason=slurmd.missing())
def test_the_prefix_with_slurm(mode, cluster):
    command = example(PREFIX, "bash", **PATIENT, **{"train.py": f"train.py {mode}"})
    allocation = ["salloc", "--nodes=2", "--ntasks-per-node=2", "bash", "-c", command]
    with slurmd.real_slurm(cluster) as variables:
        check_job(cluster, mode, *run_job(cluster, *allocation, env=variables))


@needs_mpi
@pytest.mark.parametrize("mode", ["", "skip"])
def test_the_prefix_with_open_mpi(mode, cluster, hostfile):
    values = {"-n 8": "-n 4", "=node1": f"={cluster.nodes[0]}", "train.py": f"train.py {mode}"}
    command = example(PREFIX, "bash", 1, **PATIENT, **values)
    check_job(cluster, mode, *run_job(cluster, "bash", "-c", command, env=mpi.AS_ROOT))


# -- any other way


def test_any_other_way(cluster):
    with contextlib.ExitStack() as stack:

        def start(name: str, text: str, log: str) -> subprocess.Popen:
            output = stack.enter_context(open(cluster.home / log, "wb"))
            process = cluster.popen(
                name, "env", f"--chdir={cluster.home}", "bash", "-c", text,
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip
            stack.callback(end, process)
            return process

        controller, engine = (example("Any other way", "sh", at) for at in (0, 1))
        written = cluster.home / ".ipython/profile_default/security/ipcontroller-engine.json"
        assert f"~/{written.relative_to(cluster.home)}" in engine
        started = [start(cluster.login, controller, "controller.log")]
        wait_until("the controller writes its file", written.exists)
        (cluster.home / written.name).write_text(written.read_text())
        started += [start(node, engine, f"{node}.log") for node in cluster.nodes]
        with cluster.notebook() as notebook:
            notebook.cell(example("Any other way", "python", **{"launch(8": "launch(4"}))
            use(notebook, cluster)
            close(notebook, cluster, 2, started=False)
        assert [process.poll() for process in started] == [None] * 3  # they are the user's
        assert not ours(cluster)


def test_a_controller_without_encryption_is_refused(cluster, slurm):
    """The notebook is connected on one machine, the engines are not."""
    with cluster.notebook() as notebook:
        two = {"n=8": "n=2", "--ntasks-per-node=4": "--ntasks-per-node=1", 'os.environ["IPP_ENABLE_CURVE"] = "1"\n': ""}
        start, launch = replaced(example("Slurm", "python"), two).split("\n\nworld")
        notebook.cell(start)
        assert notebook.value("client._config['interface']") == "tcp://127.0.0.1"
        with pytest.raises(AssertionError, match="without encryption"):
            notebook.cell(f"world{launch}")
        assert not ours(cluster)
        for line in example("At the end", "python").splitlines()[1:]:
            notebook.cell(line)
        cluster.wait_for_end("the job", *cluster.nodes)
