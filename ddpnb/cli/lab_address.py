"""What ``ddpnb lab`` prints once JupyterLab answers. A server extension: only the server knows its port and token."""

from __future__ import annotations

import getpass
import logging
import os
import shutil
import socket
import sys
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode

from ddpnb.cli.lab import LOG, has_display

_EVERY = ("", "0.0.0.0", "::", "*")  # noqa: S104 (compared only)
_LOCAL = ("localhost", "127.0.0.1", "::1")


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": __name__}]


def _load_jupyter_server_extension(server: Any) -> None:
    """Print the address when the event loop runs: by its second turn the port is open."""
    server.log.addFilter(lambda record: "To access the server" not in record.getMessage())  # this says it better
    server.io_loop.add_callback(server.io_loop.call_later, 0, _say, server)


def _say(server: Any) -> None:
    if server.sock:  # no browser reaches it
        return
    opened = os.path.relpath(server.file_to_run, server.root_dir) if server.file_to_run else ""
    url = address(server.connection_url, opened, server.identity_provider.token)
    prefix = os.path.dirname(sys.executable)
    lines = said(
        url, opened, server.ip, server.port, os.environ, prefix, on_path=shutil.which("ddpnb") == f"{prefix}/ddpnb"
    )
    log = os.environ.get(LOG)
    if log and _log_to(log, server):
        lines = [*lines, f"Its log is {log}. Ctrl-C ends it."]
    print("", *lines, "", sep="\n", flush=True)


def _log_to(path: str, server: Any) -> bool:
    """Write to a file from now on what the server, its extensions and its kernels write to standard error."""
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError:
        return False
    sys.stderr.flush()
    os.dup2(file, 2)
    os.close(file)
    server.log_level = logging.INFO  # of its handlers too
    server.log.info("%s", server.running_server_info())
    return True


def address(server: str, opened: str, token: str) -> str:
    """The URL of the notebook itself, or of JupyterLab if none is opened.

    Args:
        server: the server's URL, with a slash at its end.
        opened: path of the notebook in the server's root; empty: none.
        token: empty if there is a password instead.
    """
    page = f"{server}lab/tree/{quote(opened)}" if opened else f"{server}lab"
    return f"{page}?{urlencode({'token': token})}" if token else page


def said(
    url: str, opened: str, ip: str, port: int, environment: Mapping[str, str], prefix: str, *, on_path: bool
) -> Sequence[str]:
    """The lines to print.

    Args:
        url: from ``address()``.
        opened: path of the notebook; empty: none.
        ip, port: on which the server listens.
        environment: of this process.
        prefix: the folder of the ``ddpnb`` that runs.
        on_path: whether the shell finds that one.
    """
    what = "The tour" if opened.endswith("tour.ipynb") else "The notebook" if opened else "JupyterLab"
    lines = [f"{what} is at  {url}"]
    if not has_display(environment) and ip in (*_LOCAL, *_EVERY):
        lines += [
            "There is no display here. On the machine with the browser, type this, then open the URL there:",
            f"    ssh -L {port}:localhost:{port} {_login(environment)}",
        ]
    if not on_path:
        lines += [
            "To use ddpnb in other terminals:",
            f"    source {prefix}/activate" if os.path.exists(f"{prefix}/activate") else f"    {prefix}/ddpnb",
        ]
    return lines


def _login(environment: Mapping[str, str]) -> str:
    """``user@host``: over SSH, the address at which this machine was reached."""
    reached = environment.get("SSH_CONNECTION", "").split()
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a container whose user has no name
        user = "USER"
    return f"{user}@{reached[2] if len(reached) == 4 else socket.gethostname()}"
