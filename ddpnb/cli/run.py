"""``ddpnb run``: run a torchrun script on all ranks and diagnose hangs, crashes and divergence."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, TypeVar

from ddpnb.cli import add_patience, add_ranks, add_results, claim_results, ranks, record, say, scaling
from ddpnb.errors import CannotWrite, UsageError
from ddpnb.recording import interrupts
from ddpnb.recording.files import check_folder
from ddpnb.recording.protocol import KEEP
from ddpnb.texts import shell_word

if TYPE_CHECKING:
    from ddpnb.recording.findings import Diagnosis
    from ddpnb.recording.recording import Recording
    from ddpnb.world.command_run import CommandRun
    from ddpnb.world.doctor import Checkup
    from ddpnb.world.plain_run import PlainRun
    from ddpnb.world.run import Run

_Job = TypeVar("_Job", bound="PlainRun | CommandRun")
COMMAND = "COMMAND"  # stands for the script where a command is given
HELP = "run a torchrun script on N local ranks and diagnose hangs, crashes and divergence"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "ddpnb run [options] (SCRIPT | -m MODULE) [ARGS...]\n       ddpnb run [options] -- COMMAND...\n"
        "       ddpnb run --record [--dir DIR] -- COMMAND..."
    )
    parser.epilog = (
        "exit status: 0 success on all ranks; 1 ddpnb itself failed, or the diagnosis could not be written; "
        "2 usage error; 3 hang or mismatch; 4 completed, but with errors, such as replicas that differ; else that of COMMAND, "
        "or the script's own if it crashed; 128+n terminated by signal n (130 Ctrl-C, 143 SIGTERM, 129 terminal closed). "
        "Signals are passed on; the ranks have 30 s to end, or end at once with a second Ctrl-C"
    )
    add_ranks(parser)
    add_patience(parser)
    parser.add_argument(
        "--end-after-patience", action="store_true",
        help="end the job also for a finding that is not proven: a rank that has been blocked for --patience seconds, and may "
        "still continue (for CI)",
    )  # fmt: skip
    parser.add_argument(
        "--fence",
        choices=("raise", "warn", "off"),
        default="raise",
        help="what to do when ranks call mismatching collectives (default: raise)",
    )
    parser.add_argument(
        "--debug", action="store_true", help="set TORCH_DISTRIBUTED_DEBUG=INFO, NCCL_DEBUG=INFO and the like"
    )
    parser.add_argument(
        "--log-dir",
        metavar="DIR",
        help="write each rank's complete output to DIR/rank0.log ...; existing logs are renamed to rank0.log.1 ...",
    )
    add_results(parser, "write the diagnosis as JSON (after Ctrl-C, or another signal, its outcome is interrupted)")
    parser.add_argument("--account", action="store_true", help="print where each rank's time went")
    add_lines(parser)
    parser.add_argument(
        "--scaling", metavar="N,N", help="run with each of these numbers of ranks and compare, e.g. --scaling 1,2,4"
    )
    parser.add_argument("--plot", metavar="FILE", help="with --scaling: draw the curve as a .png, .svg or .pdf")
    parser.add_argument("-q", "--quiet", action="store_true", help="say nothing of a run without errors and warnings")
    parser.add_argument(
        "--keep", action="store_true", help="leave a hung job alive, and print how to open it in a notebook"
    )
    parser.add_argument(
        "--fork", action="store_true",
        help="start faster: fork the ranks from one process with torch imported; they share its hash seed, so that sets "
        "have the same order on all ranks, which in separate processes they have not",
    )  # fmt: skip
    parser.add_argument(
        "--record", action="store_true",
        help="only record, on all hosts of the job, for ddpnb diagnose: nothing is watched, checked or ended",
    )  # fmt: skip
    parser.add_argument(
        "--dir", metavar="DIR",
        help="with --record: folder for the records, which all hosts reach under this path (default: a new one here)",
    )  # fmt: skip
    parser.add_argument("--master-port", "--master_port", type=int, metavar="PORT", help="as for torchrun")
    parser.add_argument("--standalone", action="store_true", help="accepted, as every run is one")
    parser.add_argument("-m", "--module", action="store_true", help="SCRIPT is the name of a module, as for python -m")
    parser.add_argument("script", metavar="SCRIPT", help="training script, as for torchrun")
    rest = parser.add_argument("args", nargs=argparse.REMAINDER, metavar="ARGS", help="arguments for SCRIPT")
    rest.required = False  # as it is; argparse names it among what is missing
    parser.set_defaults(command_line=None)


def run(arguments: argparse.Namespace) -> int:
    """Run the script or the command; returns the exit status."""
    # Checked before anything starts: a wrong path should not cost seconds.
    from ddpnb.world.run_requests import check_script, check_terms

    if arguments.record or arguments.dir is not None:
        record.run(arguments)
    if arguments.log_dir is not None:
        check_folder(arguments.log_dir)
    if arguments.command_line is not None:
        return of_command(arguments)
    if not arguments.module:
        check_script(arguments.script)
    if arguments.scaling is not None:
        return scaling.run(arguments)
    if arguments.plot is not None:
        raise UsageError("--plot draws the curve of --scaling.", "For a time line: --save, then ddpnb export.")
    check_terms(arguments.fence, arguments.patience)
    size = ranks(arguments)
    claim_results(arguments)
    _say_what_is_not_seen()
    with ExitStack() as stack:
        job = ran(stack, lambda: start(arguments, size), lambda job: job.run.wait(), arguments)
        return report(job, job.run, job.run.diagnosis, job.run.exit_status, arguments)


def ran(
    stack: ExitStack, make: Callable[[], _Job], wait: Callable[[_Job], object], arguments: argparse.Namespace
) -> _Job:
    """Start a job, which ends with ``stack``, and wait for it; a signal meanwhile is answered as a run answers it."""
    started: list[_Job] = []
    with reported_when_interrupted(lambda: next(iter(started), None), arguments):
        with interrupts.put_off():  # once ranks run, what is known of them is shown
            job = make()
            stack.enter_context(job)
            started.append(job)
        wait(job)
    return job


def _say_what_is_not_seen() -> None:
    from ddpnb.recording.protocol import sees_processes

    if not sees_processes():
        say(
            "there is no /proc here, so a rank that is blocked looks as if it computed: only hangs that the recorded calls "
            "prove are found."
        )


def of_command(arguments: argparse.Namespace) -> int:
    """Run the launch command; returns the exit status.

    Raises:
        UsageError: there is no command, or options of ``ddpnb run SCRIPT`` were given.
    """
    from ddpnb.world.command_run import CommandRun
    from ddpnb.world.run_requests import check_terms

    if not arguments.command_line:
        raise UsageError(
            "no command given after --.", "Type what you type without ddpnb: ddpnb run -- torchrun train.py"
        )
    for name in ("nproc", "scaling", "plot", "module", "master_port", "debug", "fork"):
        if getattr(arguments, name):
            option = {"nproc": "-n", "module": "-m"}.get(name, f"--{name.replace('_', '-')}")
            raise UsageError(f"{option} goes with a script, not with a command after --.", "Give it to the command.")
    check_terms(arguments.fence, arguments.patience)
    claim_results(arguments)
    _say_what_is_not_seen()

    def make() -> CommandRun:
        return CommandRun(
            arguments.command_line,
            fence=fence_of(arguments),
            patience=arguments.patience,
            end_after_patience=arguments.end_after_patience,
            backend=arguments.backend,
            log_dir=arguments.log_dir,
        )

    with ExitStack() as stack:
        job = ran(stack, make, lambda job: job.wait(), arguments)
        if job.run is None:
            job.say_unrecorded()
            if job.status or not arguments.quiet:
                say(_nothing_checked(job.status))
        return report(job, job.run, job.diagnosis, job.exit_status, arguments)


def _nothing_checked(status: int | None) -> str:
    """What is said of a command without a process group: where it failed, its own output says why."""
    from ddpnb.ranks.exit_reasons import in_words

    if status:
        return f"the command {in_words(status)} before ddpnb saw a process group: see its output above. Nothing was checked."
    return "no process of this command has initialised a process group: nothing was checked."


@contextmanager
def reported_when_interrupted(
    current: Callable[[], PlainRun | CommandRun | None], arguments: argparse.Namespace
) -> Iterator[None]:
    """Inside, a signal that ends the command is given to the job; what is known is printed, and the job may end by itself."""
    from ddpnb.world.end_by_signal import EndBySignal

    end = EndBySignal(current, say)
    with interrupts.passed_on(end.further):
        try:
            yield
        except (KeyboardInterrupt, SystemExit):
            interrupts.notice()
            number, since_ns = interrupts.received()
            diagnosis = end.begin(number or signal.SIGINT, since_ns)
            job = current()
            run = job.run if job is not None else None
            save(diagnosis, arguments.json)
            save(run.recording if run is not None else None, arguments.save)
            with suppress(OSError, ValueError):  # the signal may say that the terminal was closed
                if run is not None and diagnosis.findings:  # else the last line says all
                    show_diagnosis(diagnosis)
                if run is not None:
                    show_lines(run.recording, arguments)
            end.wait()
            if job is not None and job.own_status is not None:
                raise SystemExit(job.own_status) from None
            raise
        finally:
            end.close()


def start(arguments: argparse.Namespace, size: int, log_dir: str | None = None, *, shown: bool = True) -> PlainRun:
    """Start the script on this number of ranks."""
    from ddpnb.ranks import devices
    from ddpnb.ranks.jobs.spawned import Program
    from ddpnb.world.plain_run import PlainRun
    from ddpnb.world.run_requests import parses

    plan = devices.plan(size, arguments.backend)
    for warning in plan.warnings:
        say(f"warning: {warning}")
    return PlainRun(
        plan,
        Program(arguments.script, tuple(arguments.args), arguments.module),
        fork=arguments.fork,
        fence=fence_of(arguments),
        patience=arguments.patience,
        end_after_patience=arguments.end_after_patience,
        say=say,
        debug=arguments.debug,
        port=arguments.master_port,
        log_dir=log_dir or arguments.log_dir,
        # Of a file that Python cannot parse each rank says the same; the card says it once.
        stream=sys.stdout if shown and (arguments.module or parses(arguments.script)) else None,
    )


def fence_of(arguments: argparse.Namespace) -> str:
    """What the fence does: an exception would end the rank that is to be kept."""
    return KEEP if arguments.keep and arguments.fence == "raise" else arguments.fence


def report(
    job: PlainRun | CommandRun, run: Run | None, diagnosis: Diagnosis, status: int, arguments: argparse.Namespace
) -> int:
    """Write what was found, end the job and show it last; returns the exit status."""
    executed = run.recording if run is not None else None
    account = str(run.account) if arguments.account and run is not None else ""
    status = save(diagnosis, arguments.json, status)
    status = save(run.recording if run is not None else None, arguments.save, status)
    kept = arguments.keep and diagnosis.outcome == "hang"
    if kept:
        job.keep()
    else:
        job.close()
    with suppress(OSError, ValueError):
        _show_verdict(diagnosis, executed, quiet=arguments.quiet)
        show_lines(executed, arguments)
        if account:
            print(account, file=sys.stderr, flush=True)
    if kept:
        ended = [rank for rank, code in diagnosis.exit_codes.items() if code is not None]
        say(f"the job is kept{_but_ended(ended)}. In another terminal:")
        say(f"    ddpnb attach --stacks {shell_word(job.folder)}")
        say("In a notebook:")
        say(f'    import ddpnb; job = ddpnb.attach("{job.folder}"); ddpnb.show(job)')
        say("It ends with its processes, or with Ctrl-C here.")
        job.wait_for_end()
    return status


def _but_ended(ranks: Sequence[int]) -> str:
    from ddpnb.recording import phrases

    return f", without {phrases.ranks(ranks)}, which ended before" if ranks else ""


def _show_verdict(diagnosis: Diagnosis, recording: Recording | None, *, quiet: bool) -> None:
    """The findings; of a run that has none a line with what was recorded of it."""
    shown = [finding for finding in diagnosis.findings if not finding.withdrawn]  # these have been shown
    if quiet and diagnosis.outcome == "ok" and all(finding.severity == "note" for finding in shown):
        return
    if shown or (diagnosis.outcome != "ok" and recording is not None):
        show_diagnosis(diagnosis)
    elif recording is not None:
        from ddpnb.render import verdict

        say(verdict.line(diagnosis, recording))


def show_diagnosis(diagnosis: Diagnosis) -> None:
    from ddpnb.render import card

    card.show(diagnosis)


def add_lines(parser: argparse.ArgumentParser) -> None:
    """The options of ``show_lines``."""
    parser.add_argument(
        "--lines", action="store_true",
        help="print which ranks ran which line, since the last collective or optimizer step that all ranks have begun "
        "(Python 3.12 and later)",
    )  # fmt: skip
    parser.add_argument(
        "--lines-of", metavar="FILE", help="the same for this file (default: the one in which the ranks part first)"
    )


def show_lines(recording: Recording | None, arguments: argparse.Namespace) -> None:
    """Print which ranks ran which line, if that was asked for."""
    if recording is None or not (arguments.lines or arguments.lines_of):
        return
    from ddpnb.render.source_lines import lines

    try:
        print(f"\n{lines(recording, arguments.lines_of)}", file=sys.stderr, flush=True)
    except UsageError as error:
        say(str(error))


def save(result: Diagnosis | Checkup | Recording | None, path: str | None, status: int = 0) -> int:
    """Write the result if a path is given; returns the exit status, which is never 0 if writing failed."""
    if path is None or result is None:
        return status
    try:
        result.save(path)
    except CannotWrite as error:
        say(str(error))
        return status or 1
    return status
