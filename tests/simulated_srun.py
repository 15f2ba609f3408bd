"""``srun`` on simulated hosts: starts tasks on each, passes the environment on, and ends what they leave behind.

As slurmstepd does, it kills all processes of a step on a host as soon as the last task there has ended. Usage:
``srun [-n TASKS_PER_HOST] COMMAND...``, with the name of a file in SIMULATED_HOSTS: for each host what goes before a
command that runs there, and variables.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

HOSTS = "SIMULATED_HOSTS"
_TICK_S = 0.02
_TERM_S = 2.0


def write(network, folder: Path) -> dict[str, str]:
    """Make the command ``srun`` for these hosts; the variables with which it is found.

    Args:
        network: of ``simulated_hosts``.
        folder: for its files.
    """
    srun = folder / "bin" / "srun"
    srun.parent.mkdir()
    srun.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{__file__}" "$@"\n')
    srun.chmod(0o755)
    described = {name: {"enter": host.enter, "variables": {}} for name, host in network.hosts.items()}
    (folder / "hosts.json").write_text(json.dumps(described))
    return {HOSTS: str(folder / "hosts.json"), "PATH": f"{srun.parent}{os.pathsep}{os.environ['PATH']}"}


def write_beside(network, folder: Path) -> dict[str, str]:
    """The same for a step whose first host is the launcher's, and whose second is the last simulated one."""
    name = network.names[-1]
    described = {
        "here": {"enter": [], "variables": {"GLOO_SOCKET_IFNAME": network.link}},
        name: {"enter": network.hosts[name].enter, "variables": {"GLOO_SOCKET_IFNAME": "eth0"}},
    }
    (folder / "beside.json").write_text(json.dumps(described))
    return {HOSTS: str(folder / "beside.json")}


class Step:
    """One step of a job: tasks on all hosts."""

    def __init__(self, command: list[str], tasks: int) -> None:
        hosts = json.loads(Path(os.environ[HOSTS]).read_text())
        self._id = str(os.getpid())
        self._tasks: dict[int, list[subprocess.Popen[bytes]]] = {}
        kept = {name: value for name, value in os.environ.items() if name not in (HOSTS, "TMPDIR")}
        for node, (name, host) in enumerate(hosts.items()):
            for local in range(tasks):
                variables = {
                    "SLURM_JOB_ID": self._id, "SLURM_NODEID": str(node), "SLURMD_NODENAME": name,
                    "SLURM_PROCID": str(node * tasks + local), "SLURM_LOCALID": str(local),
                    "SLURM_NTASKS": str(len(hosts) * tasks), "SLURM_NNODES": str(len(hosts)),
                }  # fmt: skip
                whole = [*host["enter"], "env", "-C", os.getcwd(), *command]
                self._tasks.setdefault(node, []).append(
                    subprocess.Popen(whole, env=kept | variables | host["variables"])
                )

    def wait(self) -> int:
        """Wait for all tasks; the highest exit status, as srun's."""
        left = dict(self._tasks)
        while left:
            time.sleep(_TICK_S)
            for node in [node for node, tasks in left.items() if all(task.poll() is not None for task in tasks)]:
                del left[node]
                self._signal(signal.SIGKILL, node)
        statuses = [task.returncode for tasks in self._tasks.values() for task in tasks]
        return max(128 - status if status < 0 else status for status in statuses)

    def cancel(self, *_: object) -> None:
        """End the step: politely, then by force."""
        self._signal(signal.SIGTERM)
        time.sleep(_TERM_S)
        self._signal(signal.SIGKILL)
        sys.exit(128 + signal.SIGTERM)

    def _signal(self, number: int, node: int | None = None) -> None:
        wanted = {f"SLURM_JOB_ID={self._id}".encode()}
        wanted |= {f"SLURM_NODEID={node}".encode()} if node is not None else set()
        for entry in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                if wanted <= set(Path(f"/proc/{entry}/environ").read_bytes().split(b"\0")):
                    os.kill(int(entry), number)


def main() -> int:
    arguments = sys.argv[1:]
    tasks = 2
    if arguments[0] == "-n":
        tasks = int(arguments[1])
        arguments = arguments[2:]
    step = Step(arguments, tasks)
    signal.signal(signal.SIGTERM, step.cancel)
    signal.signal(signal.SIGINT, step.cancel)
    return step.wait()


if __name__ == "__main__":
    sys.exit(main())
