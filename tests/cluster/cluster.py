"""A simulated cluster: a login node, two compute nodes, a home folder that all share, and a notebook on the login node."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jupyter_client.blocking.client import BlockingKernelClient

from tests.simulated_hosts import DEADLINE_S, Network, end, wait_until

_CHANNELS = ("shell_port", "iopub_port", "stdin_port", "control_port", "hb_port")
_FIRST_PORT = 20001  # of a kernel: nothing else uses ports of a host that was just made


class Notebook:
    """A kernel, whose cells are run as those of a notebook.

    Args:
        connection: its connection file.
        process: it, or what has started it.
        log: what it writes.
    """

    def __init__(self, connection: Path, process: subprocess.Popen, log: Path) -> None:
        self._process = process
        self._log = log
        self._client = BlockingKernelClient()
        self._client.load_connection_file(str(connection))
        self._client.start_channels()
        try:
            self._client.wait_for_ready(timeout=DEADLINE_S)
        except BaseException as error:
            error.add_note(log.read_text(errors="replace"))
            self.close()
            raise

    def cell(self, code: str) -> str:
        """Run a cell that must not fail; what it prints."""
        return self._run(code)[1]

    def value(self, expression: str) -> Any:
        """The value of an expression that JSON can say."""
        found = self._run("import json", {"value": f"json.dumps({expression})"})[0]["value"]
        assert found["status"] == "ok", "\n".join([expression, *found.get("traceback", ())])
        return json.loads(ast.literal_eval(found["data"]["text/plain"]))

    def _run(self, code: str, expressions: dict[str, str] | None = None) -> tuple[dict[str, Any], str]:
        shown: list[str] = []

        def take(message: dict[str, Any]) -> None:
            content = message["content"]
            shown.append(content.get("text", "") or "\n".join(content.get("traceback", ())))

        reply = self._client.execute_interactive(
            code, allow_stdin=False, timeout=2 * DEADLINE_S, output_hook=take, user_expressions=expressions or {}
        )
        text = "".join(shown)
        assert reply["content"]["status"] == "ok", f"{code}\n{text}\n{self._log.read_text(errors='replace')}"
        return reply["content"]["user_expressions"], text

    def shut_down(self) -> None:
        """End the kernel as a notebook does, and wait for the process."""
        self._client.shutdown()
        self._process.wait(DEADLINE_S)

    def close(self) -> None:
        """Close the connections."""
        self._client.stop_channels()


def listens(address: tuple[str, int]) -> bool:
    """Whether a TCP connection can be made."""
    with contextlib.suppress(OSError):
        socket.create_connection(address, timeout=1).close()
        return True
    return False


class Cluster(Network):
    """The hosts, with a user whose home folder is on all of them.

    Args:
        folder: an empty one.
    """

    def __init__(self, folder: Path) -> None:
        self.home = folder / "shared" / "home"
        self.programs = self.home / "bin"
        users = [line.split(":") for line in Path("/etc/passwd").read_text().splitlines()]
        lines = [":".join([*user[:5], str(self.home), "/bin/bash"] if user[0] == "root" else user) for user in users]
        super().__init__(folder, ("login", "node1", "node2"), files={"/etc/passwd": "\n".join(lines) + "\n"})
        self.programs.mkdir(parents=True)
        self.login, *self.nodes = self.names

    def popen(self, name: str, *argv: object, **more) -> subprocess.Popen:
        own = os.pathsep.join([str(self.programs), str(Path(sys.executable).parent), os.environ["PATH"]])
        environment = {"HOME": str(self.home), "PATH": own, "SHELL": "/bin/bash", **more.pop("env", {})}
        return super().popen(name, *argv, env=environment, **more)

    @contextlib.contextmanager
    def notebook(self, *before: object, shell: str = "{}", **more) -> Iterator[Notebook]:
        """A notebook on the login node, in the home folder.

        Args:
            before: a command that is given the command of the kernel.
            shell: a text with that command in place of the braces, for bash.
            more: see ``popen``.
        """
        path, log = self.home / "kernel.json", self.home / "kernel.log"
        ports = {name: _FIRST_PORT + at for at, name in enumerate(_CHANNELS)}
        common = {"ip": self.hosts[self.login].address, "transport": "tcp", "signature_scheme": "hmac-sha256"}
        path.write_text(json.dumps({**ports, **common, "key": secrets.token_hex(16), "kernel_name": "python3"}))
        command = shell.replace("{}", f"{sys.executable} -m ipykernel_launcher -f {path}")
        with open(log, "wb") as output:
            process = self.popen(
                self.login, "env", f"--chdir={self.home}", *before, "bash", "-c", command,
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True, **more,
            )  # fmt: skip
        at = (common["ip"], ports["hb_port"])
        try:
            wait_until("the kernel listens", lambda: listens(at) or process.poll() is not None)
            notebook = Notebook(path, process, log)
            with contextlib.closing(notebook):
                yield notebook
                if process.poll() is None:
                    notebook.shut_down()
        finally:
            end(process)

    def texts(self, name: str) -> dict[int, str]:
        """The processes of a host and their command lines."""
        found = {}
        for pid in self.pids(name):
            with contextlib.suppress(OSError):
                found[pid] = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ").strip()
        return found

    def wait_for_end(self, what: str, *names: str, keep: tuple[str, ...] = ()) -> None:
        """Wait until no process runs on these hosts but those whose command lines contain one of ``keep``."""

        def left() -> list[str]:
            texts = [text for name in names for text in self.texts(name).values()]
            return [text for text in texts if not any(part in text for part in keep)]

        try:
            wait_until(f"{what} ends", lambda: not left())
        except AssertionError as error:
            error.add_note("\n".join(left()))
            raise
