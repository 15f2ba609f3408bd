"""What Binder must hold, 2 GB for all of it: ``python -m benchmarks.binder``.

JupyterLab is started as Binder does, a notebook's kernel launches a world of 4 ranks and shows its dashboard, and
``train.py`` of the tour trains meanwhile. Printed is the proportional memory (PSS) of every process: what several
processes share counts once.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
from jupyter_client.blocking.client import BlockingKernelClient

from benchmarks import ranks
from benchmarks.rows import Goal, Row
from benchmarks.show import alone

ROOT = Path(__file__).parents[1]
_TICK_S = 0.1
TRAIN = """
import ddpnb
world = ddpnb.launch({ranks}, quiet=True, fork={fork})
dashboard = ddpnb.show(world)
run = world.run("notebooks/train.py", "--fixed", "--steps", "100000", stream=None)
while not run.wait(1).done and min(rank.steps for rank in world.snapshot().ranks.values()) < {steps}:
    pass
print(f"{{run.outcome}} after {{world.status()[0].steps}} steps")
"""
PLAIN = """
import ipyparallel as ipp
cluster = ipp.Cluster(n={ranks})
client = cluster.start_and_connect_sync()
def first():
    import torch, torch.distributed
client[:].apply_sync(first)
"""


@dataclass
class Lab:
    """A JupyterLab that ``binder/start`` has started."""

    process: subprocess.Popen[bytes]
    port: int
    folder: Path

    def ask(self, path: str, method: str = "GET", timeout: float = 20.0):
        """What the server's REST interface answers."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/{path}", method=method, data=b"{}" if method == "POST" else None)  # fmt: skip
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return answer.read()

    @contextlib.contextmanager
    def kernel(self, timeout: float = 30.0) -> Iterator[BlockingKernelClient]:
        """A kernel of this server."""
        number = json.loads(self.ask("api/kernels", "POST"))["id"]
        client = BlockingKernelClient(connection_file=str(self.folder / "runtime" / f"kernel-{number}.json"))
        client.load_connection_file()
        client.start_channels(hb=False)  # on a busy machine a kernel that starts misses heartbeats
        try:
            client.kernel_info(reply=True, timeout=timeout)
            yield client
        finally:
            client.stop_channels()
            self.ask(f"api/kernels/{number}", "DELETE")

    def family(self) -> list[psutil.Process]:
        """The server and all processes that came of it."""
        top = psutil.Process(self.process.pid)
        return [top, *top.children(recursive=True)]


@contextlib.contextmanager
def lab(repository: Path = ROOT, timeout: float = 60.0) -> Iterator[Lab]:
    """JupyterLab as Binder starts it, with a configuration of its own; ended with all that came of it.

    Args:
        repository: where it is started.
        timeout: seconds for it to answer.
    """
    with socket.socket() as free, TemporaryDirectory(prefix="ddpnb-binder-") as folder:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        own = {f"JUPYTER_{name.upper()}_DIR": os.path.join(folder, name) for name in ("config", "data", "runtime")}
        path = f"{os.path.dirname(sys.executable)}{os.pathsep}{os.environ['PATH']}"
        command = [str(repository / "binder" / "start"), "jupyter", "lab", "--no-browser", "--allow-root", "--ip=127.0.0.1",
                   f"--port={port}", "--ServerApp.port_retries=0", "--IdentityProvider.token=", "--ServerApp.disable_check_xsrf=True"]  # fmt: skip
        process = subprocess.Popen(
            command, cwd=repository, env={**os.environ, **own, "PATH": path}, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        found = Lab(process, port, Path(folder))
        try:
            _until_it_answers(found, time.monotonic() + timeout)
            yield found
        finally:
            family = found.family() if process.poll() is None else []
            process.send_signal(signal.SIGTERM)
            _, left = psutil.wait_procs(family[1:], timeout=20)
            for one in left:
                with contextlib.suppress(psutil.NoSuchProcess):
                    one.kill()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)


def _until_it_answers(found: Lab, deadline: float) -> None:
    while True:
        try:
            found.ask("api", timeout=1.0)
            return
        except OSError:
            if found.process.poll() is not None or time.monotonic() >= deadline:
                raise RuntimeError("JupyterLab does not answer") from None
            time.sleep(_TICK_S)


def said(client: BlockingKernelClient, code: str, timeout: float = 60.0) -> str:
    """Run a cell; what it printed, or the error as an exception."""
    told: list[str] = []

    def hear(message) -> None:
        if message["msg_type"] == "stream":
            told.append(message["content"]["text"])

    reply = client.execute_interactive(code, timeout=timeout, output_hook=hear)["content"]
    if reply["status"] != "ok":
        raise RuntimeError(f"{reply.get('ename')}: {reply.get('evalue')}")
    return "".join(told)


def _kind(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.NoSuchProcess):
        command = " ".join(process.cmdline())
        for part, name in (("child.py engine", "ranks"), ("child.py forks", "ranks and the process that forks them"), ("child.py controller", "controller"), ("ipykernel_launcher", "kernel"), ("jupyter", "JupyterLab")):  # fmt: skip
            if part in command:
                return name
    return "other"


def notebook_memory(quick: bool = False, count: int = 4, steps: int = 200) -> Iterator[Row]:
    """memory of JupyterLab, its kernel and the ranks that train"""
    count, steps = (2, 5) if quick else (count, steps)
    sizes: dict[str | bool, dict[str, list[float]]] = {"training": {}, True: {}, False: {}}
    with lab() as server, server.kernel() as kernel:
        for fork, kinds in sizes.items():
            said(kernel, TRAIN.format(ranks=count, steps=steps, fork=repr(fork)), 120)
            for process in server.family():
                kinds.setdefault(_kind(process), []).extend(ranks.pss([process]))
            said(kernel, "world.close()")
        said(kernel, PLAIN.format(ranks=count), 120)
        plain = ranks.pss(server.family())
        said(kernel, "cluster.stop_cluster_sync()")
    for fork, kinds in sizes.items():
        how = {"training": "forked, as on Binder", True: "forked with torch alone"}.get(fork, "in new interpreters")
        yield Row(
            "memory", f"JupyterLab, kernel with dashboard, {count} ranks that train ({how})", (sum(map(sum, kinds.values())),), "MB",
            "JupyterLab and plain ipyparallel, torch imported", (sum(plain),), Goal(1000.0, "median"),
            ", ".join(f"{kind} {sum(each):.0f}" for kind, each in kinds.items()),
        )  # fmt: skip


if __name__ == "__main__":
    alone("memory", notebook_memory)
