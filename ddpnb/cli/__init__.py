"""The command line. Each command is one small file over the facade."""

from __future__ import annotations

import errno
import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

from ddpnb import __version__
from ddpnb.errors import DdpnbError, UsageError
from ddpnb.recording import interrupts
from ddpnb.texts import did_you_mean, printable, shell_word

if TYPE_CHECKING:
    import argparse

COMMANDS = (
    "run",
    "bisect",
    "attach",
    "diagnose",
    "reenact",
    "export",
    "lab",
    "explain",
    "scan",
    "pitfalls",
    "doctor",
    "mcp",
)
_WITH_RANKS = ("run", "bisect", "reenact", "pitfalls", "doctor")  # that start ranks, and end them
STATUS_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Entry of ``ddpnb``; returns the exit status."""
    given = sys.argv[1:] if argv is None else list(argv)
    with interrupts.ending(for_good=argv is None):
        try:
            return _run(given)
        except (KeyboardInterrupt, SystemExit) as end:
            interrupts.notice()  # else it is raised again, uncaught
            if isinstance(end, KeyboardInterrupt) or interrupts.received()[0]:  # not one of argparse
                say(f"interrupted{'; no ranks are left running' if given[:1] and given[0] in _WITH_RANKS else ''}")
            if isinstance(end, SystemExit):
                raise
            return STATUS_INTERRUPTED
        except DdpnbError as error:
            say(str(error))
            return 2 if isinstance(error, UsageError) else 1
        finally:
            if argv is None:
                _drop_unread()


def add_ranks(parser: argparse.ArgumentParser) -> None:
    """The options of a command that starts ranks."""
    parser.add_argument(
        "-n", "--nproc", "--nproc-per-node", "--nproc_per_node", type=int, metavar="N",
        help="number of ranks (default: one per GPU, else 2)",
    )  # fmt: skip
    parser.add_argument(
        "--backend", metavar="B", help="nccl or gloo (default: $DDP_BACKEND, else nccl if there are GPUs, else gloo)"
    )


def add_patience(parser: argparse.ArgumentParser) -> None:
    """The option of a command that decides what may hang."""
    parser.add_argument(
        "--patience", type=float, default=10.0, metavar="S",
        help="seconds a rank may be blocked outside any collective before a warning says so (default: 10)",
    )  # fmt: skip


def add_results(
    parser: argparse.ArgumentParser,
    json: str = "write the diagnosis as JSON",
    recording: str = "a recording of the ranks",
) -> None:
    """The options of a command that writes its diagnosis and its recording."""
    parser.add_argument("--json", metavar="FILE", help=json)
    parser.add_argument("--save", metavar="FILE", help=f"write {recording}, which ddpnb.load() reads")


def ranks(arguments: argparse.Namespace) -> int:
    """The number of ranks to start.

    Raises:
        DeviceError: they do not fit the devices of this machine.
    """
    from ddpnb.ranks import devices

    size = arguments.nproc if arguments.nproc is not None else (devices.count_gpus() or 2)
    devices.plan(size, arguments.backend)
    return size


def claim(*paths: str | None) -> None:
    """Check that results can be written to these files, and remove earlier ones: a command may end without any.

    Raises:
        CannotWrite: there is no such folder, or it is read-only.
    """
    from ddpnb.recording.files import check_writable, remove_earlier

    given = [path for path in paths if path is not None]
    for action in (check_writable, remove_earlier):
        for path in given:
            action(path)


def claim_results(arguments: argparse.Namespace) -> None:
    """Check that the diagnosis and the recording can be written.

    Raises:
        UsageError, CannotWrite: they cannot.
    """
    results = [path for path in (arguments.json, arguments.save) if path is not None]
    if len({os.path.realpath(path) for path in results}) < len(results):
        raise UsageError("--json and --save name the same file.", "Give each its own file.")
    claim(*results)


def say(text: str) -> None:
    """Print a line of our own; a closed terminal is ignored, since the exit status and the files remain."""
    with suppress(OSError, ValueError):
        print(f"ddpnb: {printable(text)}", file=sys.stderr, flush=True)


def show(text: str) -> None:
    """Print a result; a reader that wants no more of it (``| head``) is no error."""
    try:
        print(printable(text, styled=True), flush=True)
    except BrokenPipeError:
        _drop_unread()


def _drop_unread() -> None:
    """Drop output that a closed terminal or pipe did not take: Python would exit with status 120 because of it."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError as error:
            if error.errno in (errno.EIO, errno.EPIPE):
                with suppress(OSError, ValueError):
                    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        except (ValueError, AttributeError):  # it is closed, or there is none
            pass


def parser() -> argparse.ArgumentParser:
    """The parser of the whole command line, with one of its own for each command."""
    # Imported here, where an interrupt is answered with a message.
    import argparse

    class Parser(argparse.ArgumentParser):
        def error(self, message: str) -> NoReturn:
            super().error(message if message.isprintable() else ascii(message)[1:-1])

    whole = Parser(
        prog="ddpnb",
        description="Debugger for PyTorch distributed training: find out why ranks hang, crash or diverge.",
        allow_abbrev=False,
    )
    whole.add_argument("--version", action="version", version=f"ddpnb {__version__}")
    commands = whole.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name in COMMANDS:
        module = import_module(f"ddpnb.cli.{name}")
        command = commands.add_parser(name, help=module.HELP, description=module.HELP, allow_abbrev=False)
        module.add_arguments(command)
    return whole


def _unknown(words: Sequence[str], options: Iterable[str]) -> str:
    """What is said of arguments that a command does not know, with the options that are spelled almost so."""
    option = next((word.partition("=")[0] for word in words if word.startswith("-")), "")
    begun = [one for one in options if len(option) > 3 and one.startswith(option)]
    near = did_you_mean(option, (one for one in options if one.startswith("--"))) if option else ""
    if begun:
        near = f"Did you mean {' or '.join(begun[:3])}?"
    return f"unrecognized arguments: {' '.join(words)}. {near}".rstrip()


def _check_command(typed: Sequence[str], whole: argparse.ArgumentParser) -> None:
    """Refuse what is no command, with what may have been meant: a script and a launcher go behind ``ddpnb run``.

    Who types none sees them all.
    """
    if not typed:
        whole.print_help(sys.stderr)
        raise SystemExit(2)
    if typed[0].startswith("-") or typed[0] in COMMANDS:
        return
    word = typed[0]
    near = did_you_mean(word, COMMANDS)
    if not near and (word.endswith(".py") or os.path.isfile(word)):
        near = f"Did you mean ddpnb run {shell_word(word)}?"
    elif not near and shutil.which(word):
        near = f"Did you mean ddpnb run -- {shell_word(word)} ...?"
    whole.error(f"invalid choice: {word!r} is no command. {near or 'The commands: ' + ', '.join(COMMANDS)}")


def parse(argv: list[str]) -> argparse.Namespace:
    """What was typed after ``ddpnb``; ``command_line`` is the launch command after ``--``, or None."""
    typed, command_line = _split(argv)
    whole = parser()
    _check_command(typed, whole)
    arguments, unknown = whole.parse_known_args(typed)
    if unknown:  # an error of the command: else the usage of ``ddpnb`` would be shown
        commands: Any = next(action.choices for action in whole._actions if action.dest == "command")
        command: argparse.ArgumentParser = commands[arguments.command]
        command.error(f"{_unknown(unknown, command._option_string_actions)} All options: {command.prog} -h")
    arguments.command_line = command_line
    return arguments


def _run(argv: list[str]) -> int:
    arguments = parse(argv)
    return import_module(f"ddpnb.cli.{arguments.command}").run(arguments)


def _split(argv: list[str]) -> tuple[list[str], list[str] | None]:
    """The arguments of ddpnb, and the launch command after ``--``: None if there is none, or a script comes before it.

    All that is typed behind ``lab`` is JupyterLab's.
    """
    if argv[:1] == ["lab"] and argv[1:] not in (["-h"], ["--help"]):
        return argv[:1], argv[1:]
    if argv[:1] not in (["run"], ["bisect"]) or "--" not in argv:
        return argv, None
    at = argv.index("--")
    import argparse

    options = argparse.ArgumentParser(add_help=False, exit_on_error=False, allow_abbrev=False)
    command = import_module(f"ddpnb.cli.{argv[0]}")
    command.add_arguments(options)
    script = next(action for action in options._actions if action.dest == "script")
    script.nargs = "?"
    try:
        known, _ = options.parse_known_args(argv[1:at])
    except (argparse.ArgumentError, SystemExit):
        return argv, None
    if known.script is not None:
        return argv, None
    return [*argv[:at], command.COMMAND], argv[at + 1 :]
