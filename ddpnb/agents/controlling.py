"""The tools that start, stop or change something: they need ``ddpnb mcp --control``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ddpnb.agents import answers, rows
from ddpnb.agents.sources import Sources, wait_s
from ddpnb.agents.started import RECORDING, StartedCommand
from ddpnb.errors import UsageError
from ddpnb.recording.arguments import short
from ddpnb.world.breakpoints import Holding
from ddpnb.world.job import Job


class Controlling:
    """Each method is a tool.

    Args:
        sources: the jobs and files by name.
        evaluates: whether conditions, which are expressions, may run on ranks.
    """

    def __init__(self, sources: Sources, *, evaluates: bool = False) -> None:
        self._sources = sources
        self._evaluates = evaluates
        self._armed: dict[int, list[Holding]] = {}  # by the identity of the job, which stays attached

    def run(self, command: list[str], nproc: int = 0, cwd: str = "", wait: float = 10.0) -> answers.Started:
        """Start a job under ddpnb in the background; it ends with this server, and a hang is kept so that it can be looked at.

        command: a script with its arguments, as ["train.py", "--steps", "20"], with nproc ranks; or with nproc 0 a launch
        command, as ["torchrun", "--nproc-per-node", "4", "train.py"]. cwd: where it runs; empty: where this server runs. wait: seconds to wait until the outcome is known.
        """
        _check_command(command)
        options = ["--keep", "--save", RECORDING]
        asked = [*options, "-n", str(nproc), *command] if nproc else [*options, "--", *command]
        started = self._sources.started.start("run", ["run", *asked], cwd)
        started.wait(wait_s(wait), "kept")
        return _started(started)

    def bisect(
        self,
        command: list[str],
        nproc: int = 0,
        vary: Sequence[str] = (),
        cwd: str = "",
        job: str = "",
        wait: float = 10.0,
    ) -> answers.Started:
        """Find which option, value or number of ranks makes a command fail. Takes minutes: it runs in the background.

        command, nproc, cwd: as for run. vary: options that are there or not (amp), or have a harmless and a failing value
        (num-workers=0|4); empty: all options of the script. job: the name of a bisection that was started, to wait for it
        instead. wait: seconds to wait for the result, which is at the end of data.text.
        """
        if job:
            running = self._sources.started.get(job)
            if running is None:
                raise UsageError(f"there is no bisection {short(job)}.", "The tool jobs lists those that were started.")
        else:
            _check_command(command)
            options = [part for one in vary for part in ("--vary", one)]
            asked = [*options, "-n", str(nproc), *command] if nproc else [*options, "--", *command]
            running = self._sources.started.start("bisect", ["bisect", *asked], cwd)
        running.wait(wait_s(wait))
        return _started(running)

    def hold(
        self,
        job: str,
        before: str = "",
        ranks: list[int] | None = None,
        seq: int | None = None,
        line: str = "",
        when: str = "",
        count: int = 1,
        differs: str = "",
        exception: bool = False,
        parted: bool = False,
        wait: float = 5.0,
    ) -> answers.Done:
        """Stop ranks before a collective or a line, so that they can be looked at; time-outs are suspended meanwhile.

        job: as for attach. before: an operation (all_reduce); empty: the next one. ranks: all by default. seq: its number in
        its group. line: train.py:40, or train_step() for the entry of a function; count: at the n-th time. when: an expression
        in the frame there, as step == 5; differs: one whose value must be the same on all ranks (both need --evaluate).
        exception: where an exception leaves the program. parted: stop where ranks part. wait: seconds to wait until they are
        held. The tools step and resume let them continue.
        """
        if (when or differs) and not self._evaluates:
            raise UsageError(
                "a condition runs code on the ranks, which this server may not do.",
                "Give seq or ranks instead, or start the server with: ddpnb mcp --control --evaluate",
            )
        live = self._sources.live(job)
        given: dict[str, Any] = {"before": before} if before else {}
        holding = live.hold(
            ranks=ranks,
            seq=seq,
            line=line,
            when=when,
            count=count,
            differs=differs,
            exception=exception,
            parted=parted,
            **given,
        )
        self._armed.setdefault(id(live), []).append(holding)
        found = holding.wait(wait_s(wait))
        return rows.done(live, str(holding), found.ranks, ["variables: what differs; step: the next call; resume."])

    def step(
        self,
        job: str,
        n: int = 1,
        how: str = "collective",
        to: str = "",
        ranks: list[int] | None = None,
        wait: float = 5.0,
    ) -> answers.Done:
        """Let held ranks make n steps, and stop them there.

        job: as for attach. how: collective, over, into, out or iteration; to: run to this line instead, train.py:44. ranks: all
        that are held by default. wait: seconds to wait until they are held again.
        """
        live = self._sources.live(job)
        status = live.step(n, ranks=ranks, timeout=wait_s(wait), how=how, to=to)
        return rows.done(live, f"stepped {f'to {to}' if to else f'{n} {how}'}", status.ranks)

    def resume(self, job: str, ranks: list[int] | None = None) -> answers.Done:
        """Disarm the holds of this server, and let held ranks continue.

        job: as for attach. ranks: all by default; of some ranks alone, holds stay armed.
        """
        live = self._sources.live(job)
        if ranks is None:
            for holding in self._armed.pop(id(live), []):
                holding.remove()
        live.resume(ranks)
        return rows.done(live, "resumed", live.status().ranks)

    def release(self, job: str, wait: float = 10.0) -> answers.Done:
        """Interrupt ranks that hang, wait or are held: their program gets an exception. Ends a run that this server started.

        job: as for attach. wait: seconds to wait at most.
        """
        command = self._sources.started.get(job)
        if command is not None and command.target is None:
            command.end()
            return answers.Done(done=f"{job} is ended", held=[], ranks=[])
        live: Job = self._sources.live(job)
        freed = live.release(wait_s(wait))
        if command is not None:
            command.wait(1.0)
            command.end()
        done = f"released ranks {list(freed.ranks)}" if freed.ranks else "no rank was released"
        return answers.Done(done=done, held=[], ranks=[], data=answers.Text(text=str(freed)))


def _check_command(command: Sequence[str]) -> None:
    """Raise UsageError unless it is a command."""
    if not command or not all(command):
        raise UsageError("no command is given.", 'Such as command=["train.py", "--steps", "20"], nproc=2.')
    if command[0].startswith("-"):
        raise UsageError(f"{short(command[0])} is no script.", "The command begins with a script or a launcher.")


def _started(command: StartedCommand) -> answers.Started:
    state = command.state
    following = {"kept": "diagnose: say why it does not continue.", "ended": "diagnose: what was recorded of it."}
    return answers.Started(
        job=command.name,
        pid=command.process.pid,
        state=state,
        exit_status=command.exit_status,
        data=answers.Text(text=command.output()),
        next=[following.get(state, "status: what its ranks are doing.")] if command.name.startswith("run") else [],
        limits=["It ends with this server."] if state != "ended" else [],
    )
