"""``ddpnb lab``: JupyterLab on the tour notebook."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import ddpnb
from ddpnb.cli import say
from ddpnb.errors import CannotWrite, UsageError

HELP = "open JupyterLab on the tour notebook; all arguments are passed on to jupyter lab"
TOUR = Path("notebooks", "tour.ipynb")
_ADDRESS = "ddpnb.cli.lab_address"
_ROOTS = ("--notebook-dir", "--ServerApp.root_dir", "--ServerApp.notebook_dir", "--NotebookApp.notebook_dir")
_BROWSERS = ("--no-browser", "--browser", "--ServerApp.open_browser", "--ServerApp.browser", "--LabApp.open_browser")
_LOGS = ("--debug", "--log-level", "--ServerApp.log_level", "--LabApp.log_level", "--Application.log_level")
LOG = "DDPNB_LAB_LOG"  # the file of the server's log
_ASKS = ("--help-all", "--version", "--show-config", "--show-config-json", "--generate-config")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "args", nargs="*", metavar="ARGS", help="a notebook or folder to open instead of the tour; --port 9999; --no-browser; ..."
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Become JupyterLab: signals, questions and the exit status are its own.

    Raises:
        UsageError: JupyterLab is not installed.
        CannotWrite: Jupyter cannot write its own files.
    """
    given: list[str] = arguments.command_line or []
    if find_spec("jupyterlab") is None:
        raise UsageError(
            "JupyterLab is not installed in this environment.", f"Run: {sys.executable} -m pip install jupyterlab"
        )
    if not _is_a_question(given):
        from jupyter_core.paths import jupyter_runtime_dir

        _check_folders(jupyter_runtime_dir())
        project = Path(ddpnb.__file__).parents[1]
        folder, opened = place(Path.cwd(), project, given)
        if opened is None:
            there = (
                f"it is in {project / TOUR.parent}: run ddpnb lab there"
                if (project / TOUR).exists()
                else "it is in ddpnb's source"
            )
            say(f"the tour is not in this folder ({there}). JupyterLab opens {folder}.")
        if not _has(given, _LOGS):
            os.environ[LOG] = os.path.join(jupyter_runtime_dir(), f"ddpnb-lab-{os.getpid()}.log")
        given = options(given, folder, opened, os.environ, root=hasattr(os, "geteuid") and os.geteuid() == 0)
        os.environ["JUPYTER_CONFIG_PATH"] = os.pathsep.join(
            filter(None, (os.environ.get("JUPYTER_CONFIG_PATH"), str(Path(__file__).parent / "lab_config")))
        )
        say("JupyterLab starts ...")
    sys.stdout.flush()
    return os.execv(sys.executable, [sys.executable, "-m", "jupyterlab", *given])


def place(directory: Path, project: Path, given: Sequence[str]) -> tuple[Path, str | None]:
    """The root of the server, and the file that it opens: empty if ``given`` says which, None if there is no tour.

    Args:
        directory: the working directory.
        project: the folder with ddpnb's source, or with the installed package.
        given: what was typed behind ``ddpnb lab``.
    """
    if any(os.path.exists(word) for word in given if not word.startswith("-")):
        return directory, ""
    root = project if (project / TOUR).exists() and directory.is_relative_to(project) else directory
    found = next((path for path in (root / TOUR, root / TOUR.name) if path.exists()), None)
    return root, str(found) if found is not None else None


def options(
    given: Sequence[str], folder: Path, opened: str | None, environment: Mapping[str, str], *, root: bool
) -> list[str]:
    """The arguments of jupyter lab; those that were typed come last and win.

    Args:
        given: what was typed behind ``ddpnb lab``.
        folder, opened: from ``place()``.
        environment: of this process.
        root: in a container; Jupyter refuses otherwise.
    """
    added = [f"--ServerApp.jpserver_extensions={_ADDRESS}=True"]
    if not _has(given, _LOGS):  # until the server runs only errors; then all of it goes to a file
        added += ["--ServerApp.log_level=ERROR", "--LabApp.log_level=ERROR"]
    if root and "--allow-root" not in given:
        added.append("--allow-root")
    if not _has(given, _ROOTS):
        added.append(f"--ServerApp.root_dir={folder}")
    if not has_display(environment) and not environment.get("BROWSER") and not _has(given, _BROWSERS):
        added.append("--no-browser")  # else a browser for text might take the terminal
    return [*([opened] if opened else []), *added, *given]


def has_display(environment: Mapping[str, str], platform: str = sys.platform) -> bool:
    """Whether a browser can open on this machine, as far as the environment shows it."""
    if environment.get("SSH_CONNECTION") and not environment.get("DISPLAY"):
        return False
    return platform in ("darwin", "win32") or bool(environment.get("DISPLAY") or environment.get("WAYLAND_DISPLAY"))


def _has(given: Sequence[str], names: Sequence[str]) -> bool:
    return any(word.partition("=")[0] in names for word in given)


def _is_a_question(given: Sequence[str]) -> bool:
    """Whether no server is wanted: ``--version``, or a subcommand of jupyter lab, such as ``build``."""
    if not given or given[0] in _ASKS:
        return bool(given)
    if given[0].startswith("-") or os.path.exists(given[0]):
        return False
    from jupyterlab.labapp import LabApp  # takes a second

    commands: Any = LabApp.subcommands
    return given[0] in commands


def _check_folders(runtime: str) -> None:
    """Check what Jupyter needs to write, which it reports with a traceback of its own.

    Raises:
        CannotWrite: the folder for its runtime files cannot be written.
    """
    try:
        os.makedirs(runtime, mode=0o700, exist_ok=True)
    except OSError as error:
        raise CannotWrite(f"Jupyter cannot create its folder {runtime}: {error.strerror}.", _ELSEWHERE) from None
    if not os.access(runtime, os.W_OK):
        raise CannotWrite(f"Jupyter cannot write to its folder {runtime}.", _ELSEWHERE)
    if not os.access(".", os.W_OK):
        say("this folder is read-only: notebooks open and run, but cannot be saved here.")


_ELSEWHERE = "Set JUPYTER_RUNTIME_DIR to a folder that can be written, such as /tmp/jupyter."
