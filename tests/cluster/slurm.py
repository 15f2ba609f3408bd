"""A simulated Slurm for the simulated hosts: it reads batch scripts, chooses nodes, and starts tasks with Slurm's variables.

What it does not know it refuses, as Slurm does. ``scancel`` signals the tasks alone, not what they have started
(``proctrack/pgid``): nothing but that itself ends it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import select
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from tests.simulated_hosts import Network

CPUS = 8  # of a node: as many tasks fit
KILL_WAIT_S = 5.0  # between SIGTERM and SIGKILL
PARTITIONS = ("gpu", "debug")
_OPTIONS = (
    ("--nodes", "-N"), ("--ntasks", "-n"), ("--ntasks-per-node",), ("--cpus-per-task", "-c"), ("--gpus-per-node",),
    ("--partition", "-p"), ("--time", "-t"), ("--job-name", "-J"), ("--output", "-o"), ("--export",), ("--input", "-i"),
    ("--cpu-bind",),
)  # fmt: skip


def cpus_of_tasks(count: int) -> list[int]:
    """The CPU to which Slurm binds each task of a node."""
    there = sorted(os.sched_getaffinity(0))
    return [there[task % len(there)] for task in range(count)]


class Refused(Exception):
    """What Slurm does not accept."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise Refused(message)


def _options(arguments: Sequence[str]) -> dict[str, Any]:
    """The options before a command, and under ``command`` that."""
    parser = _Parser(add_help=False, allow_abbrev=False)
    for names in _OPTIONS:
        parser.add_argument(*names)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    return {name: value for name, value in vars(parser.parse_args(arguments)).items() if value is not None}


@dataclass
class Job:
    """A job: its options, the nodes and the number of tasks on each."""

    number: int
    options: Mapping[str, Any]
    placed: Mapping[str, int]
    environment: Mapping[str, str]
    script: str = ""
    tasks: list[subprocess.Popen] = field(default_factory=list)
    running: bool = True

    @property
    def variables(self) -> dict[str, str]:
        """Those of all processes of the job."""
        count = list(self.placed.values())
        return {
            "SLURM_JOB_ID": str(self.number),
            "SLURM_JOBID": str(self.number),
            "SLURM_JOB_NAME": self.options.get("job_name", "interactive"),
            "SLURM_JOB_PARTITION": self.options.get("partition", PARTITIONS[-1]),
            "SLURM_JOB_NODELIST": ",".join(self.placed),
            "SLURM_NODELIST": ",".join(self.placed),
            "SLURM_JOB_NUM_NODES": str(len(count)),
            "SLURM_NNODES": str(len(count)),
            "SLURM_NTASKS": str(sum(count)),
            "SLURM_NPROCS": str(sum(count)),
            "SLURM_TASKS_PER_NODE": f"{count[0]}(x{len(count)})" if len(count) > 1 else str(count[0]),
            **({"SLURM_NTASKS_PER_NODE": self.options["ntasks_per_node"]} if "ntasks_per_node" in self.options else {}),
        }


class Slurm:
    """The daemon, and its programs in ``programs``, which belongs on the PATH.

    Args:
        network: the hosts.
        nodes: those on which jobs run.
        programs: an empty folder that all hosts see.
    """

    def __init__(self, network: Network, nodes: Sequence[str], programs: Path) -> None:
        self.jobs: dict[int, Job] = {}
        self.refused: list[str] = []
        self._network = network
        self._nodes = nodes
        source = Path(__file__).with_name("slurm_program.py").read_text()
        for name in ("sbatch", "srun", "salloc", "scancel", "squeue"):
            (programs / name).write_text(f"#!{sys.executable} -IS\n{source}")
            (programs / name).chmod(0o755)
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(programs / "slurmctld"))
        self._socket.listen(64)
        threading.Thread(target=self._serve, name="slurmctld", daemon=True).start()

    @property
    def queue(self) -> list[Job]:
        """The jobs that run."""
        return [job for job in self.jobs.values() if job.running]

    def close(self) -> None:
        """End all jobs."""
        self._socket.close()
        for job in self.queue:
            self._end(job, signal.SIGKILL)

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                caller, _ = self._socket.accept()
                threading.Thread(target=self._answer, args=(caller,), name="slurm request", daemon=True).start()

    def _answer(self, caller: socket.socket) -> None:
        with caller, contextlib.suppress(OSError):
            _, streams, _, _ = socket.recv_fds(caller, 1, 3)
            try:
                with caller.makefile() as lines:
                    asked = json.loads(lines.readline())
                try:
                    answer = getattr(self, f"_{asked['program']}")(asked, caller, streams)
                except Refused as error:
                    self.refused.append(str(error))
                    answer = {"error": str(error), "status": 1}
            finally:
                for stream in streams:
                    os.close(stream)
            if answer is not None:
                caller.sendall(json.dumps(answer).encode() + b"\n")

    # -- jobs

    def _new_job(self, options: dict[str, Any], environment: Mapping[str, str], script: str = "") -> Job:
        if options.get("partition", PARTITIONS[0]) not in PARTITIONS:
            raise Refused("invalid partition specified: " + options["partition"])
        per_node = int(options.get("ntasks_per_node", 0))
        tasks = int(options.get("ntasks", 0)) or int(options.get("nodes", 1)) * (per_node or 1)
        nodes = int(options.get("nodes", 0)) or math.ceil(tasks / (per_node or CPUS))
        most = per_node or math.ceil(tasks / nodes)
        if nodes > len(self._nodes) or most > CPUS or tasks > nodes * most:
            raise Refused("Requested node configuration is not available")
        placed = {node: min(most, tasks - at * most) for at, node in enumerate(self._nodes[:nodes])}
        job = Job(len(self.jobs) + 17, options, placed, environment, script)
        self.jobs[job.number] = job
        return job

    def _sbatch(self, asked: dict[str, Any], _caller: socket.socket, _streams: list[int]) -> dict[str, Any]:
        typed = _options(asked["arguments"])
        path = os.path.join(asked["directory"], typed["command"][0])
        script = Path(path).read_text()
        if not script.startswith("#!"):
            raise Refused("This does not look like a batch script.")
        lines = [line.removeprefix("#SBATCH ") for line in script.splitlines() if line.startswith("#SBATCH ")]
        options = _options(shlex.split(" ".join(lines))) | typed  # what is typed takes precedence
        options.setdefault("job_name", os.path.basename(path))
        environment = asked["environment"] if options.get("export", "ALL") == "ALL" else {}
        job = self._new_job(options, environment, script)
        threading.Thread(target=self._run_batch, args=(job, asked["directory"]), daemon=True).start()
        return {"output": f"Submitted batch job {job.number}\n"}

    def _run_batch(self, job: Job, directory: str) -> None:
        first = next(iter(job.placed))
        output = os.path.join(directory, job.options.get("output", "slurm-%j.out").replace("%j", str(job.number)))
        own = {"SLURM_SUBMIT_DIR": directory, "SLURMD_NODENAME": first, "SLURM_PROCID": "0", "SLURM_LOCALID": "0"}
        command = ["env", f"--chdir={directory}", "bash", "-c", job.script]
        environment = {**job.environment, **job.variables, **own, "SLURM_NODEID": "0"}
        with open(output, "ab") as log:
            batch = self._network.popen(
                first,
                *command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        job.tasks.append(batch)
        batch.wait()
        job.running = False

    def _salloc(self, asked: dict[str, Any], caller: socket.socket, _streams: list[int]) -> None:
        options = _options(asked["arguments"])
        job = self._new_job(options, asked["environment"])
        answer = {
            "output": f"salloc: Granted job allocation {job.number}\n",
            "command": options["command"],
            "allocation": {**asked["environment"], **job.variables},
        }
        caller.sendall(json.dumps(answer).encode() + b"\n")
        while caller.recv(1):  # its end
            pass
        self._end(job, signal.SIGTERM)

    def _srun(self, asked: dict[str, Any], caller: socket.socket, streams: list[int]) -> dict[str, Any]:
        options, environment = _options(asked["arguments"]), asked["environment"]
        job = self.jobs.get(int(environment.get("SLURM_JOB_ID", 0)))
        if job is None or not job.running:
            raise Refused("there is no allocation: run it in a batch script, or below salloc")
        program = options["command"]
        if not program:
            raise Refused("No command given to execute.")
        stdin = subprocess.DEVNULL if options.get("input") == "none" else streams[0]
        tasks: list[subprocess.Popen] = []
        for node_id, (node, count) in enumerate(job.placed.items()):
            for local in range(count):
                own = {
                    "SLURM_PROCID": str(len(tasks)), "SLURM_LOCALID": str(local), "SLURM_NODEID": str(node_id),
                    "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": job.variables["SLURM_NTASKS"], "SLURMD_NODENAME": node,
                }  # fmt: skip
                bound = ["taskset", "-c", str(cpus_of_tasks(count)[local])]
                task = self._network.popen(
                    node, *bound, "env", f"--chdir={asked['directory']}", *program, env={**environment, **job.variables, **own},
                    stdin=stdin if not tasks else subprocess.DEVNULL, stdout=streams[1], stderr=streams[2],
                    start_new_session=True,
                )  # fmt: skip
                tasks.append(task)
        job.tasks += tasks
        while any(task.poll() is None for task in tasks):
            gone, _, _ = select.select([caller], [], [], 0.05)
            if gone and not caller.recv(1):
                _signal(tasks, signal.SIGTERM)
                _await(tasks)
        return {"status": max(task.returncode % 256 for task in tasks)}

    def _scancel(self, asked: dict[str, Any], _caller: socket.socket, _streams: list[int]) -> dict[str, Any]:
        parser = _Parser(add_help=False)
        parser.add_argument("-s", "--signal", default="15")
        parser.add_argument("job", type=int)
        given = parser.parse_args(asked["arguments"])
        job = self.jobs.get(given.job)
        if job is None:
            raise Refused(f"Kill job error on job id {given.job}: Invalid job id specified")
        if given.signal == "15":
            threading.Thread(target=self._end, args=(job, signal.SIGTERM), daemon=True).start()
        else:
            _signal(job.tasks, signal.Signals(int(given.signal)))
        return {}

    def _end(self, job: Job, number: signal.Signals) -> None:
        _signal(job.tasks, number)
        _await(job.tasks)
        job.running = False

    def _squeue(self, _asked: dict[str, Any], _caller: socket.socket, _streams: list[int]) -> dict[str, Any]:
        rows = ["JOBID PARTITION NAME ST NODES NODELIST"]
        for job in self.queue:
            known = job.variables
            rows.append(
                f"{job.number} {known['SLURM_JOB_PARTITION']} {known['SLURM_JOB_NAME']} R {known['SLURM_NNODES']} "
                f"{known['SLURM_NODELIST']}"
            )
        return {"output": "\n".join(rows) + "\n"}


def _signal(tasks: Sequence[subprocess.Popen], number: signal.Signals) -> None:
    """Signal the processes on the hosts, which are children of those that entered there."""
    for task in tasks:
        if task.poll() is None:
            with contextlib.suppress(OSError):
                for child in Path(f"/proc/{task.pid}/task/{task.pid}/children").read_text().split():
                    os.kill(int(child), number)


def _await(tasks: Sequence[subprocess.Popen]) -> None:
    deadline = time.monotonic() + KILL_WAIT_S
    while any(task.poll() is None for task in tasks):
        if time.monotonic() > deadline:
            _signal(tasks, signal.SIGKILL)
            deadline = math.inf
        time.sleep(0.05)
