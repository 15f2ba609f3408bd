"""``ddpnb run -- srun ...`` whose ranks run on two simulated hosts, and the launcher on neither."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import ddpnb
from tests.simulated_hosts import ROOT, Network, missing
from tests.simulated_srun import write, write_beside

pytestmark = [
    pytest.mark.torture,
    pytest.mark.timeout(240),
    pytest.mark.skipif(bool(missing()), reason=missing()),
]

END_S = 100.0
_TRAIN = """
import os, signal, socket, sys, time
import torch, torch.distributed as dist

mode = sys.argv[1]
dist.init_process_group("gloo")
rank = dist.get_rank()
for step in range(int(sys.argv[2]) if len(sys.argv) > 2 else 6):
    if step == 3 and rank == 3 and mode == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if step == 3 and rank == 3 and mode == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    if step == 3 and rank == 3 and mode == "raise":
        raise ValueError("a bad record")
    if step == 3 and rank == 3 and mode == "skip":
        continue  # culprit
    if mode == "paced":
        time.sleep(0.1)
    if mode == "in turn" and step == 3:
        time.sleep(0.3 * rank)
    total = torch.ones(4)
    dist.all_reduce(total)  # waiting
sys.stdout.write(f"total {rank} {total.sum().item()} {socket.gethostname()}\\n")  # at once: lines do not mix
sys.stdout.flush()
if mode != "skip":
    dist.destroy_process_group()
"""
_AS_RANKS = "RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS exec python train.py "
_TORCHRUN = (
    "exec python -m torch.distributed.run --nnodes $SLURM_NNODES --node-rank $SLURM_NODEID --nproc-per-node 2 "
    "--master-addr $MASTER_ADDR --master-port $MASTER_PORT train.py "
)


class Cluster:
    """Two hosts, the command ``srun``, and the script that jobs run, in a folder that all see."""

    def __init__(self, folder: Path) -> None:
        self.network = Network(folder)
        self.folder = self.network.shared
        self.variables = write(self.network, self.folder)
        (self.folder / "train.py").write_text(_TRAIN)
        self.lines = {
            word: number
            for number, line in enumerate(_TRAIN.splitlines(), 1)
            for word in re.findall("# (culprit|waiting)", line)
        }
        self._port = 29500

    def begin(self, *command, options=(), variables=(), launcher="srun"):
        self._port += 1
        names = list(self.network.hosts)
        kept = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
        environment = {
            **kept, **self.variables, "PYTHONPATH": str(ROOT), "MASTER_ADDR": self.network.hosts[names[0]].address,
            "MASTER_PORT": str(self._port), "OMP_NUM_THREADS": "1", **dict(variables),
        }  # fmt: skip
        environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
        (self.folder / "v.json").unlink(missing_ok=True)
        return subprocess.Popen(
            [sys.executable, "-m", "ddpnb", "run", "--json", "v.json", *map(str, options), "--", launcher, *command],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.folder,
            env=environment, start_new_session=True,
        )  # fmt: skip

    def finish(self, process):
        """Wait for its end: output, errors, and the diagnosis."""
        try:
            output, said = process.communicate(timeout=END_S)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
        path = self.folder / "v.json"
        return output, said, json.loads(path.read_text()) if path.exists() else None

    def run(self, mode, *more, how=_AS_RANKS, tasks=2, **given):
        process = self.begin("-n", str(tasks), "bash", "-c", how + " ".join([mode, *map(str, more)]), **given)
        output, said, verdict = self.finish(process)
        assert verdict is not None, said
        return process.returncode, output, said, verdict

    def assert_no_process_left(self):
        deadline = time.monotonic() + 15
        for name in self.network.hosts:
            while self.network.pids(name) and time.monotonic() < deadline:
                time.sleep(0.1)
            assert not self.network.pids(name), self.network.run(name, "ps", "-ef").stdout

    def assert_nothing_left(self):
        self.assert_no_process_left()
        for name in self.network.hosts:
            listed = self.network.run(
                name, "bash", "-c", "ls -A /dev/shm/ddpnb-0 2>/dev/null; ls -A /tmp | grep ddpnb-0"
            )
            assert not listed.stdout.strip(), listed.stdout


@pytest.fixture(scope="module")
def hosts(tmp_path_factory):
    cluster = Cluster(tmp_path_factory.mktemp("prefix"))
    try:
        yield cluster
    finally:
        cluster.network.close()


@pytest.fixture
def cluster(hosts):
    yield hosts
    hosts.assert_nothing_left()


def only(verdict, code, culprits, waiting=None):
    finding = verdict["findings"][0]
    assert (finding["code"], finding["culprits"]) == (code, culprits), verdict
    if waiting is not None:
        assert finding["waiting"] == waiting, verdict
    return finding


@pytest.mark.parametrize(("how", "tasks"), [(_AS_RANKS, 2), (_TORCHRUN, 1)])
def test_a_job_that_ends_well(cluster, how, tasks):
    status, output, said, verdict = cluster.run("well", how=how, tasks=tasks)
    assert (status, verdict["outcome"], verdict["findings"], verdict["world_size"]) == (0, "ok", [], 4), said
    names = cluster.network.names
    totals = sorted(re.findall(r"total (\d) (\S+) (\S+)", output))
    assert totals == [(str(rank), "16.0", names[rank // 2]) for rank in range(4)]
    assert verdict["exit_codes"] == {str(rank): 0 for rank in range(4)}
    (told,) = (line for line in said.splitlines() if line.startswith("ddpnb:"))
    assert told.startswith("ddpnb: ok: 4 ranks, "), said


@pytest.mark.parametrize(("how", "tasks"), [(_AS_RANKS, 2), (_TORCHRUN, 1)])
def test_a_rank_of_the_second_host_skips_a_collective(cluster, how, tasks):
    status, _, said, verdict = cluster.run("skip", how=how, tasks=tasks)
    assert (status, verdict["outcome"]) == (3, "hang"), said
    finding = only(verdict, "DDP301", [3], [0, 1, 2])
    assert {place["rank"]: place["line"] for place in finding["where"] if place["rank"] != 3} == dict.fromkeys(
        range(3), cluster.lines["waiting"]
    )


def test_a_command_that_waits_for_its_hosts(cluster):
    """As srun does in a queue."""
    mpiexec = cluster.folder / "mpiexec"
    mpiexec.write_text('#!/bin/sh\nsleep 6\nexec srun "$@"\n')
    mpiexec.chmod(0o755)
    status, _, said, _ = cluster.run("well", launcher=mpiexec, options=["--patience", "2"])
    told = [line for line in said.splitlines() if line.startswith("ddpnb:")]
    assert (status, len(told), told[-1].startswith("ddpnb: ok: ")) == (0, 2, True), said
    assert "may wait for resources" in told[0], said


def test_a_rank_of_the_second_host_is_killed(cluster):
    status, _, said, verdict = cluster.run("kill")
    assert status != 0 and verdict["outcome"] == "crash", said
    only(verdict, "DDP311", [3])


def test_a_rank_of_the_second_host_raises(cluster):
    status, _, said, verdict = cluster.run("raise")
    assert status != 0 and verdict["outcome"] == "crash", said
    assert "a bad record" in only(verdict, "DDP312", [3])["summary"]


def test_a_rank_of_the_second_host_is_stopped(cluster):
    status, _, said, verdict = cluster.run(
        "stop", options=["--patience", "3", "--end-after-patience", "--save", "stop.ddpnb"]
    )
    assert status == 3, said
    only(verdict, "DDP314", [3])
    recording = ddpnb.load(cluster.folder / "stop.ddpnb")
    known = {rank: bool(record.stacks) or record.ending is not None for rank, record in recording.ranks.items()}
    assert known == dict.fromkeys(range(4), True)
    assert recording.ranks[3].stacks  # by py-spy, on its host


def test_events_of_both_hosts_are_in_order_on_one_clock(cluster):
    status, _, said, _ = cluster.run("'in turn'", options=["--save", "clock.ddpnb"])
    assert status == 0, said
    recording = ddpnb.load(cluster.folder / "clock.ddpnb")
    entered = [
        [call for call in recording.ranks[rank].calls if call.op == "all_reduce"][3].entered_ns for rank in range(4)
    ]
    assert entered == sorted(entered), entered
    assert entered[-1] - entered[0] < 30e9  # though the clocks of the hosts are days apart


@pytest.mark.parametrize(("mode", "outcome"), [("well", "ok"), ("skip", "hang")])
def test_ranks_beside_the_launcher_and_on_another_host(cluster, mode, outcome):
    network = cluster.network
    variables = {**write_beside(network, cluster.folder), "MASTER_ADDR": network.address}
    status, output, said, verdict = cluster.run(mode, variables=variables)
    assert (status, verdict["outcome"]) == (0 if outcome == "ok" else 3, outcome), said
    if outcome == "hang":
        only(verdict, "DDP301", [3], [0, 1, 2])
    else:
        assert {where for _, where in re.findall(r"total (\d) 16.0 (\S+)", output)} == {
            os.uname().nodename,
            network.names[-1],
        }


def test_a_kept_job_is_attached_to_and_released(cluster):
    process = cluster.begin("bash", "-c", _AS_RANKS + "skip", options=["--keep"])
    try:
        said = ""
        while "It ends with its processes" not in said:
            line = process.stderr.readline()
            assert line, said
            said += line
        (folder,) = re.findall(r'ddpnb.attach\("([^"]+)"\)', said)
        with ddpnb.attach(folder) as job:
            job.run.wait(60)
            (finding,) = job.diagnosis.errors
            assert (finding.code, finding.culprits, finding.waiting) == ("DDP301", (3,), (0, 1, 2)), said
            assert job.evaluate("step", ranks=[2]).values_by_rank == {2: 5}
            freed = job.release()
            assert set(freed.ranks) >= {0, 1, 2} and not freed.left, freed
    finally:
        output, rest, _ = cluster.finish(process)
    assert process.returncode == 3, said + rest


def test_a_cut_link_is_a_finding(hosts):
    name = hosts.network.names[1]
    process = hosts.begin("bash", "-c", _AS_RANKS + "paced 900", options=["--patience", "3", "--end-after-patience"])
    try:
        wait_for_ranks(process, 4)
        time.sleep(3)
        hosts.network.cut(name)
        _, said, verdict = hosts.finish(process)
    finally:
        hosts.network.restore(name)
    hosts.assert_no_process_left()  # its files are removed by the next job there: srun has ended the agent
    assert process.returncode == 3, said
    finding = only(verdict, "DDP708", [])
    assert name in finding["summary"] and "ranks 2 and 3" in finding["summary"]


def wait_for_ranks(process, count, seconds=60.0):
    """Wait until the launcher has the records of this many ranks."""
    deadline = time.monotonic() + seconds
    place = Path(os.environ.get("DDPNB_SHM") or "/dev/shm", f"ddpnb-{os.geteuid()}")
    while time.monotonic() < deadline:
        if len(list(place.glob(f"ddpnb-{process.pid}-*/*/rank?.json"))) == count:
            return
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    raise AssertionError(f"not {count} ranks: {process.communicate(timeout=10)}")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_the_job_on_all_hosts(cluster, number):
    process = cluster.begin("bash", "-c", _AS_RANKS + "paced 900")
    wait_for_ranks(process, 4)
    process.send_signal(number)
    _, said, verdict = cluster.finish(process)
    # The status is that of the command: its launcher ends the tasks by SIGTERM, whichever signal it gets.
    assert process.returncode in (128 + number, 128 + signal.SIGTERM), said
    assert verdict["outcome"] == "interrupted"


def test_a_launcher_that_is_killed_leaves_the_job_alone(cluster):
    process = cluster.begin("bash", "-c", _AS_RANKS + "paced 150")
    wait_for_ranks(process, 4)
    process.kill()
    output, said = process.communicate(timeout=END_S)  # srun ends when its tasks do
    assert len(re.findall("total", output)) == 4, said


def test_hosts_that_do_not_reach_the_launcher_only_record(cluster):
    """As behind a firewall. Nothing of the training changes, and each host says so once."""
    way = (
        "import base64, json, os, sys; way = json.loads(base64.urlsafe_b64decode(os.environ['DDPNB_HOSTS'])); "
        "way['port'] = 9; print(base64.urlsafe_b64encode(json.dumps(way).encode()).decode())"
    )
    how = f'export DDPNB_HOSTS=$(python -S -c "{way}"); {_AS_RANKS} well'
    process = cluster.begin("bash", "-c", how)
    output, said, _ = cluster.finish(process)
    assert process.returncode == 0 and len(re.findall("total", output)) == 4, said
    (folder,) = set(re.findall(r"ddpnb diagnose (\S+)", said))
    assert sorted(re.findall(r"the ranks on host (\S+) are not watched", said)) == cluster.network.names
    done = subprocess.run(
        [sys.executable, "-m", "ddpnb", "diagnose", folder], capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0 and "completed on all ranks" in done.stderr, done.stderr
