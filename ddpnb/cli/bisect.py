"""``ddpnb bisect``: find what makes a program fail: options, a number, or a commit."""

from __future__ import annotations

import argparse
import json
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ddpnb import interrupts
from ddpnb.cli import add_patience, add_ranks, claim, ranks, say, show
from ddpnb.errors import UsageError
from ddpnb.texts import shell_word

if TYPE_CHECKING:
    from ddpnb.bisection.results import SearchResult, Trial
    from ddpnb.control.bisecting import Bisection

COMMAND = "COMMAND"  # stands for the script where a command is given
HELP = "find which options, values or commit make a program hang, crash or diverge"
UNDECIDED = 5
_KEPT = (
    "nproc",
    "backend",
    "patience",
    "fork",
    "module",
    "vary",
    "env",
    "range",
    "git",
    "ladder",
    "repeat",
    "confidence",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "ddpnb bisect [options] (SCRIPT | -m MODULE) [ARGS...]\n       ddpnb bisect [options] -- COMMAND..."
    parser.epilog = (
        "Give the failing command as it is. A probe counts as bad if it has the same finding at the same place as this "
        "command; other failures do not count. Without --vary, --env, --range and --git all options of the script are "
        "varied. exit status: 0 a smallest cause was found; 1 nothing fails; 2 usage error; 5 undecided; 130 Ctrl-C"
    )
    add_ranks(parser)
    parser.add_argument(
        "--vary", action="append", default=[], metavar="NAME[=A|B]",
        help="an option of the script that is there or not (--vary amp), or has a harmless and a failing value "
        "(--vary 'num-workers=0|4'), with others in order between them if wanted (0|2|4); nproc and backend are those of ddpnb; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--env", action="append", default=[], metavar="NAME=A|B",
        help="an environment variable with a harmless and a failing value; empty: not set; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--range", metavar="NAME=LOW..HIGH", help="find the first value that fails; LOW works, HIGH fails"
    )
    parser.add_argument(
        "--git", metavar="GOOD..BAD", help="find the first commit that fails, each in a checkout of its own"
    )
    parser.add_argument(
        "--by", choices=("steps", "checkpoints", "modules", "ranks"),
        help="read from the recording of a run: steps, the first optimizer step at which the replicas differ; checkpoints, "
        "the numbered checkpoints between which it fails; modules, the first whose output differs. By probes: ranks, the smallest number of ranks that fails",
    )  # fmt: skip
    parser.add_argument(
        "--ladder", action="store_true",
        help="begin with a single process without options, add ranks, data, workers, precision, evaluation and logging, "
        "then everything; the first of these that fails is narrowed down",
    )  # fmt: skip
    parser.add_argument(
        "--repeat", default="1", metavar="N",
        help="for a failure that does not always happen: a configuration works if it does N times; auto: as often as "
        "--confidence needs",
    )  # fmt: skip
    parser.add_argument(
        "--confidence", type=float, default=0.99, metavar="C", help="wanted with --repeat auto (default: 0.99)"
    )
    parser.add_argument(
        "--jobs", type=int, default=1, metavar="N",
        help="run up to N probes at the same time, where the machine has room for that many (default: 1)",
    )  # fmt: skip
    add_patience(parser)
    parser.add_argument("--fork", action="store_true", help="start faster, as for ddpnb run")
    parser.add_argument("--json", metavar="FILE", help="write the result as JSON")
    parser.add_argument(
        "--log", metavar="FILE", help="where to keep the log (default: ddpnb-bisect.json, until a cause is found)"
    )
    parser.add_argument("--resume", metavar="LOG", help="continue a search from its log")
    parser.add_argument("--repro", metavar="FILE", help="write the smallest failing command as a shell script")
    parser.add_argument("-m", "--module", action="store_true", help="SCRIPT is the name of a module, as for python -m")
    parser.add_argument("script", nargs="?", metavar="SCRIPT", help="training script, as for torchrun")
    parser.add_argument("args", nargs=argparse.REMAINDER, metavar="ARGS", help="arguments for SCRIPT")
    parser.set_defaults(command_line=None)


def run(arguments: argparse.Namespace) -> int:
    """Search, and print what was found; returns the exit status."""
    log = _log_of(arguments) if arguments.resume is not None else None
    bisection = _bisection(arguments)
    claim(arguments.json, arguments.repro)
    if log is not None:
        bisection.resume(log)
        say(f"continues after {_probes(bisection)}")
    path = bisection.path or ""
    try:
        bisection.save()
        result = _search(bisection, arguments.by)
    except BaseException:
        interrupts.notice()
        _write(bisection, arguments)
        if bisection.trials and path:
            say(f"the log is kept; continue with: ddpnb bisect --resume {shell_word(path)}")
        elif not arguments.keeps_log:
            _remove(path)
        raise
    status = _report(bisection, result, arguments)
    if not arguments.keeps_log and result.outcome != "undecided":
        _remove(path)
    return status


def _remove(path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)


def _log_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """Read the log that is to be resumed, and take over the options it was begun with."""
    from ddpnb.control.bisection_log import read_log, searching

    log = read_log(arguments.resume)
    options = log["options"]
    if arguments.script is not None or arguments.command_line is not None:
        raise UsageError("--resume knows the command from the log.", "Leave the command out.")
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    if given := [name for name in _KEPT if getattr(arguments, name) != parser.get_default(name)]:
        raise UsageError(
            f"--resume knows {', '.join(given)} from the log.",
            "Leave the options of the search out, or begin a new one.",
        )
    if (process := searching(arguments.resume)) is not None:
        raise UsageError(f"the search of this log still runs, in process {process}.", "Wait for it, or end it first.")
    try:
        for name in _KEPT:
            setattr(arguments, name, options[name])
        command = [str(one) for one in options["command"]]
        if options["launcher"]:
            arguments.command_line = command
        else:
            arguments.script, arguments.args = command[0], command[1:]
    except (KeyError, TypeError, IndexError):
        raise UsageError("this is not the log of a search.", "Give the file that a search has written.") from None
    return log


def _bisection(arguments: argparse.Namespace) -> Bisection:
    """The search that the options describe.

    Raises:
        UsageError: they do not.
    """
    from ddpnb.bisection.command import CommandSpace
    from ddpnb.bisection.command_line import number_of_ranks, script_place
    from ddpnb.bisection.functions import ranks_to_search
    from ddpnb.bisection.search import Search
    from ddpnb.control.bisecting import Bisection
    from ddpnb.control.bisection_log import take_log
    from ddpnb.control.probing import Job, Prober
    from ddpnb.control.run_requests import check_script, check_terms
    from ddpnb.control.worktrees import Repository
    from ddpnb.processes.environment import working_directory
    from ddpnb.source.options import declared

    launcher = arguments.command_line is not None
    command = list(arguments.command_line) if launcher else [arguments.script, *arguments.args]
    if not command or command[0] is None:
        raise UsageError("no command given.", "Give the failing command: ddpnb bisect -n 2 train.py --amp")
    if launcher and (arguments.nproc is not None or arguments.module or arguments.fork):
        raise UsageError(
            "-n, -m and --fork go with a script, not with a command after --.", "Give them to the command."
        )
    if not launcher and not arguments.module:
        check_script(command[0])
    check_terms("raise", arguments.patience)
    repository, commits = None, list[str]()
    if arguments.git is not None:
        repository = Repository(working_directory())
        commits = repository.commits(arguments.git)
    if repository is not None and (changed := repository.uncommitted()):
        say(f"changes that are not committed are in no probe: {', '.join(changed[:4])}{', ...' * (len(changed) > 4)}")
    size = 2 if launcher else ranks(arguments)
    if arguments.by == "ranks":
        if any((arguments.vary, arguments.env, arguments.range, arguments.git, arguments.ladder)):
            raise UsageError("--by ranks goes with no other search.", "Search one of them, then the next.")
        arguments.range = f"nproc=1..{ranks_to_search(number_of_ranks(command) if launcher else size)[-1]}"
    elif arguments.by is not None:
        return _of_recording(arguments, command, launcher, size)
    ladder = size if arguments.ladder else None
    space = CommandSpace(
        command,
        arguments.vary,
        arguments.env,
        arguments.range,
        commits,
        own=not launcher,
        declared=() if arguments.module else declared(command[script_place(command, launcher=launcher)]),
        ladder=ladder,
    )
    job = Job(
        not launcher,
        arguments.module,
        size,
        arguments.backend,
        arguments.patience,
        arguments.fork,
        arguments.jobs,
    )
    options = {name: getattr(arguments, name) for name in _KEPT} | {"command": command, "launcher": launcher}
    search = Search(space.space, _repeat(arguments.repeat), arguments.confidence)
    arguments.keeps_log = arguments.log is not None or arguments.resume is not None
    if arguments.resume is None:
        arguments.log, said = take_log(arguments.log)
        if said:
            say(said)
    arguments.log = arguments.log or arguments.resume
    return Bisection(space, search, Prober(job, repository), arguments.log, options)


def _of_recording(arguments: argparse.Namespace, command: list[str], launcher: bool, size: int) -> Bisection:
    from ddpnb.control.locating import ModulesBisection, RecordedBisection
    from ddpnb.control.probing import Job, Prober

    given = ("vary", "env", "range", "git", "ladder", "log", "resume")
    if any(getattr(arguments, name) for name in given) or arguments.repeat != "1":
        raise UsageError(f"--by {arguments.by} goes with no other search.", "Search one of them, then the next.")
    job = Job(not launcher, arguments.module, size, arguments.backend, arguments.patience, arguments.fork)
    arguments.keeps_log = True  # there is none
    if arguments.by == "modules":
        return ModulesBisection(Prober(job), command, not launcher, reference=not launcher and size > 1)
    return RecordedBisection(arguments.by, Prober(job), command, not launcher)


def _repeat(text: str) -> int | None:
    if text == "auto":
        return None
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:6]) <= 1000):
        raise UsageError(f"--repeat {text!r} is neither auto nor a number from 1 to 1000.")
    return int(text)


def _search(bisection: Bisection, by: str | None) -> SearchResult:
    from ddpnb.render import bisection as render

    varied = [str(one) for one in bisection.space.varied]
    if by not in (None, "ranks"):
        again = "with one rank" if by == "modules" else "if its recording leaves several places"
        say(f"runs it, and once more {again}")
    elif varied:
        say(f"varies {', '.join(varied)}: about {bisection.expected} probes")
    else:
        say(f"searches {len(bisection.search.step.candidates)} values: about {bisection.expected} probes")
    search, always = bisection.search, not bisection.search.sometimes

    def tell(trial: Trial) -> None:
        nonlocal always
        say(render.trial(trial, len(bisection.trials), bisection.left, search))
        if always and search.sometimes:
            always = False
            say("it does not always fail: measures how often, and repeats what works")

    return bisection.run(tell)


def _report(bisection: Bisection, result: SearchResult, arguments: argparse.Namespace) -> int:

    _write(bisection, arguments)
    more = sum(not trial.asked for trial in bisection.trials)
    besides = f", {more} more beside them that were not needed" if more else ""
    show(f"{bisection.conclusion()}\n{_probes(bisection)}{besides}, {bisection.seconds:.0f} s")
    if result.outcome == "found":
        typed = bisection.typed() or bisection.commit()
        show(f"  {typed}")
        if bisection.finding is not None:
            code, name, summary = (bisection.finding[key] for key in ("code", "name", "summary"))
            show(f"{code} {name}: {summary}")
        if arguments.repro is not None:
            bisection.write_repro(arguments.repro)
    return {"found": 0, "nothing fails": 1}.get(result.outcome, UNDECIDED)


def _probes(bisection: Bisection) -> str:
    number = sum(trial.asked for trial in bisection.trials)
    return f"{number} probe{'s' * (number != 1)}"


def _write(bisection: Bisection, arguments: argparse.Namespace) -> None:
    if arguments.json is not None:
        from ddpnb.files import write_whole

        write_whole(arguments.json, json.dumps(bisection.to_json(), indent=1) + "\n")
