"""``ddpnb run --record``: the command runs as without ddpnb, and its ranks record into a folder."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import time
from typing import NoReturn

from ddpnb.cli import say
from ddpnb.errors import CannotWrite, UsageError
from ddpnb.recording.files import make_folder
from ddpnb.texts import shell_word

# What needs somebody who watches the ranks.
_WATCHING = (
    "end_after_patience", "log_dir", "json", "save", "account", "lines", "lines_of", "scaling", "plot", "keep", "fork", "debug",
)  # fmt: skip


def run(arguments: argparse.Namespace) -> NoReturn:
    """Make the folder and become the command: its output, its signals and its exit status are its own.

    Raises:
        UsageError: other options do not go with it, or there is no such program.
        CannotWrite: the folder cannot be made.
    """
    if not arguments.record:
        raise UsageError("--dir goes with --record.", "ddpnb run --record --dir DIR -- COMMAND...")
    for name in _WATCHING:
        if getattr(arguments, name):
            option = f"--{name.replace('_', '-')}"
            raise UsageError(
                f"{option} does not go with --record, which only records.",
                "ddpnb diagnose FOLDER shows what was recorded.",
            )
    command = arguments.command_line if arguments.command_line is not None else _torchrun(arguments)
    if not command:
        raise UsageError(
            "no command given after --.", "Type what you type without ddpnb: ddpnb run --record -- srun ..."
        )
    _become(command, arguments)


def _torchrun(arguments: argparse.Namespace) -> list[str]:
    """The command that starts a script here. ddpnb itself would watch its ranks."""
    from ddpnb.cli import ranks
    from ddpnb.world.run_requests import check_script

    if not arguments.module:
        check_script(arguments.script)
    port = arguments.master_port
    where = ["--master-port", str(port)] if port is not None else ["--standalone"]
    what = ["--module"] if arguments.module else []
    launcher = [sys.executable, "-m", "torch.distributed.run", *where, "--nproc-per-node", str(ranks(arguments)), *what]
    return [*launcher, arguments.script, *arguments.args]


def _become(command: list[str], arguments: argparse.Namespace) -> NoReturn:
    from ddpnb.ranks.jobs.injection import injected

    if shutil.which(command[0]) is None:
        raise _cannot_run(command[0], "there is no such program")
    folder = os.path.abspath(arguments.dir or time.strftime("ddpnb-record-%Y%m%d-%H%M%S"))
    made = not os.path.isdir(folder)
    try:
        make_folder(folder)
    except OSError as error:
        raise CannotWrite(
            f"cannot make the folder {folder}: {error.strerror}.", "Give another: ddpnb run --record --dir DIR -- ..."
        ) from None
    environment = injected(os.environ, folder, "off", arguments.backend, only_record=True)
    say(f"recording. What the ranks do, now or later: ddpnb diagnose {shell_word(folder)}")
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and what is ignored stays so
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvpe(command[0], command, environment)
    except (OSError, ValueError) as error:
        if made:
            os.rmdir(folder)
        raise _cannot_run(command[0], (error.strerror if isinstance(error, OSError) else None) or str(error)) from None


def _cannot_run(program: str, why: str) -> UsageError:
    return UsageError(f"cannot run {program!r}: {why}.", "Type the command as you would without ddpnb.")
