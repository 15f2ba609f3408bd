"""``ddpnb lab``: JupyterLab on the tour notebook."""

from __future__ import annotations

import argparse
import os
import sys

from ddpnb.errors import UsageError

HELP = "open JupyterLab on the tour notebook"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("args", nargs=argparse.REMAINDER, metavar="ARGS", help="passed on to jupyter lab")


def run(arguments: argparse.Namespace) -> int:
    """Become JupyterLab: signals are its own, and it asks before it stops."""
    try:
        import jupyterlab  # noqa: F401
    except ImportError:
        raise UsageError("JupyterLab is not installed.", "Run: pip install ddpnb") from None
    tour = os.path.join("notebooks", "tour.ipynb")
    command = [sys.executable, "-m", "jupyterlab"]
    if os.path.exists(tour):
        command.append(tour)
    if hasattr(os, "geteuid") and os.geteuid() == 0:  # in a container; Jupyter refuses otherwise
        command.append("--allow-root")
    sys.stdout.flush()
    return os.execv(sys.executable, [*command, *arguments.args])
