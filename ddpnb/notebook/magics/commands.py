"""The magics. Each calls a method of ``World``; ``%ddp_hold?`` shows its arguments."""

from __future__ import annotations

import traceback
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from IPython.core.magic import Magics, cell_magic, line_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments
from IPython.display import display

from ddpnb import notebook as panels
from ddpnb.errors import CellFailed, UsageError
from ddpnb.notebook.magics import arguments
from ddpnb.notebook.magics.arguments import parse
from ddpnb.notebook.magics.following import Cell
from ddpnb.notebook.magics.px import Px
from ddpnb.ranks.devices import count_gpus
from ddpnb.recording.calls import OPERATIONS
from ddpnb.recording.faults import KINDS
from ddpnb.recording.findings import Diagnosis
from ddpnb.render import as_html, as_text, markup
from ddpnb.render.document import Table
from ddpnb.rules.diagnose import diagnose
from ddpnb.texts import printable, relative
from ddpnb.world.breakpoints import Holding
from ddpnb.world.faults import Injection
from ddpnb.world.launching import launch
from ddpnb.world.release import Freed
from ddpnb.world.results import FrameDiff, WorldStatus
from ddpnb.world.run_requests import FENCES, shown_name
from ddpnb.world.world import World, open_worlds

if TYPE_CHECKING:
    from ddpnb.notebook.panel import Panel

_LET_GO_S = 2.0  # how long %ddp_resume waits before it shows the ranks

#: what is completed behind a magic
WORDS = {"%ddp_hold": OPERATIONS, "%ddp_inject": tuple(kind.replace(" ", "_") for kind in KINDS)}

_RANKS: dict[str, Any] = {"type": arguments.ranks, "default": None, "metavar": "0,2"}
_NO_WAIT: dict[str, Any] = {
    "action": "store_true",
    "help": "return immediately; the output below this cell is still updated",
}
_KEEP_GOING: dict[str, Any] = {
    "action": "store_true",
    "help": "show an error, but do not stop the notebook ('Run all')",
}


@magics_class
class DdpMagics(Magics):
    """The magics of one shell."""

    def __init__(self, shell: Any) -> None:
        super().__init__(shell)
        self.px = Px(shell)
        self._launched: dict[str, World] = {}
        self._current: World | None = None

    # -- the world

    @line_magic
    @magic_arguments()
    @argument("n", nargs="?", type=int, default=None, metavar="N", help="ranks (default: one per GPU, else 2)")
    @argument("--backend", metavar="B", help="nccl or gloo (default: DDP_BACKEND, else nccl with GPUs)")
    @argument("--fence", choices=FENCES, default="raise", help="what to do on mismatched collectives (default: raise)")
    @argument("--patience", type=float, default=10.0, metavar="S",
              help="seconds that a rank may be blocked outside any collective before a warning says so (default: 10)")  # fmt: skip
    @argument(
        "--end-after-patience", action="store_true", help="report it as a hang, although the rank may still continue"
    )
    @argument("--devices", type=arguments.ranks, metavar="0,1", help="CUDA devices to use, in rank order")
    @argument("--debug", action="store_true", help="set the debugging variables of torch and NCCL that are safe")
    @argument("--timeout", type=float, default=60.0, metavar="S",
              help="seconds to wait for all ranks to start: more on a busy machine (default: 60)")  # fmt: skip
    @argument(
        "--name", type=arguments.variable, default="world", help="name of the variable for the World (default: world)"
    )
    def ddp_launch(self, line: str) -> None:
        """Launch ranks for %%ddp and all other magics, and assign their World to the variable ``world``.

        Closes an earlier World of the same name. %px and %%px run on these ranks too.
        """
        asked = parse(self.ddp_launch, line)
        if asked.name in self._launched:
            self._close(self._launched[asked.name])
        world = launch(
            asked.n if asked.n is not None else (count_gpus() or 2),
            backend=asked.backend,
            devices=asked.devices,
            fence=asked.fence,
            patience=asked.patience,
            end_after_patience=asked.end_after_patience,
            debug=asked.debug,
            timeout=asked.timeout,
        )
        self._launched[asked.name] = self._current = world
        self._shell.push({asked.name: world})
        display(world)
        self.px.activate(world)

    @line_magic
    @magic_arguments()
    @argument(
        "where",
        nargs="?",
        choices=panels.PLACES,
        default="right",
        help="a side panel, beside the notebook, or here (default: right)",
    )
    def ddp_show(self, line: str) -> Panel:
        """Show the dashboard of the ranks in the side panel of JupyterLab, or elsewhere."""
        where = parse(self.ddp_show, line).where
        return panels.show(self._world(), where=where)

    @line_magic
    @magic_arguments()
    def ddp_close(self, line: str) -> None:
        """Close the World: end all ranks."""
        parse(self.ddp_close, line)
        self._close(self._world())

    def _close(self, world: World) -> None:
        world.close()
        self._launched = {name: one for name, one in self._launched.items() if one is not world}
        self.px.refresh()

    @property
    def _shell(self) -> Any:
        return self.shell

    def _world(self) -> World:
        """The World that %ddp_launch launched last, else the variable ``world``, else the only open World."""
        if self._current is not None and not self._current.closed:
            return self._current
        named = self._shell.user_ns.get("world")
        if isinstance(named, World) and not named.closed:
            return named
        there = list(open_worlds)
        if len(there) == 1:
            return there[0]
        if there:
            raise UsageError(f"there are {len(there)} Worlds.", "Assign the one to use to the variable world.")
        raise UsageError("no World is running.", "Launch one: %ddp_launch 4, or world = ddpnb.launch(4).")

    # -- cells

    @cell_magic
    @magic_arguments()
    @argument("--ranks", **_RANKS, help="run on these ranks only; collectives wait for the others")
    @argument("--no-wait", **_NO_WAIT)
    @argument("--keep-going", **_KEEP_GOING)
    def ddp(self, line: str, cell: str) -> None:
        """Run the cell on all ranks, and show their output; equal output of several ranks is shown once.

        Figures, HTML, Markdown, tables and display() appear as in any cell; the value of the last expression too,
        unless it ends with a semicolon.
        Variables are kept between cells. The cell returns when all ranks have ended it, when they are known
        never to end it (it then shows the diagnosis), or when ranks are held (%ddp_hold). Interrupting the cell
        releases the ranks. The Run is in the variable ``_ddp``.
        """
        asked = parse(self.ddp, line)
        self._run(f"# %%ddp {line}".rstrip(), cell, asked.ranks, wait=not asked.no_wait, keep_going=asked.keep_going)

    @cell_magic
    @magic_arguments()
    @argument("ranks", type=arguments.ranks, metavar="RANKS", help="0,2 or 0-3")
    @argument("--no-wait", **_NO_WAIT)
    @argument("--keep-going", **_KEEP_GOING)
    def ddp_rank(self, line: str, cell: str) -> None:
        """Run the cell on these ranks only: %%ddp_rank 0,2. Collectives wait for the other ranks."""
        asked = parse(self.ddp_rank, line)
        self._run(f"# %%ddp_rank {line}", cell, asked.ranks, wait=not asked.no_wait, keep_going=asked.keep_going)

    def _run(self, magic: str, code: str, ranks: list[int] | None, *, wait: bool, keep_going: bool) -> None:
        world = self._world()
        here = (shown_name(frame.f_code.co_filename) for frame, _ in traceback.walk_stack(None))
        # The line with the magic is the first one that the notebook shows: here a comment.
        name = next(filter(None, here), None)
        run = world._runs.execute(f"{magic}\n{code}", ranks, None, name, draws=True)
        self._shell.push({"_ddp": run}, interactive=False)
        cell = Cell(world, run, live=hasattr(self._shell, "kernel"))
        if not wait:
            cell.follow()
            return
        cell.wait()
        if run.outcome in ("hang", "crash") and not keep_going:
            first = next(iter(run.diagnosis.errors), None)
            why = relative(printable(first.summary)) if first is not None else "see above"
            raise CellFailed(f"{run.outcome}: {why}")

    # -- looks

    @line_magic
    @magic_arguments()
    def ddp_status(self, line: str) -> WorldStatus:
        """What every rank is doing, one line per rank."""
        parse(self.ddp_status, line)
        return self._world().status()

    @line_magic
    @magic_arguments()
    def ddp_why(self, line: str) -> Diagnosis:
        """Diagnose the last run, or the current state of the ranks if there was none."""
        parse(self.ddp_why, line)
        world = self._world()
        if world.last_run is not None and any(in_run for _, in_run in world._ranks.members.values()):
            return world.last_run.diagnosis
        return diagnose(world.snapshot(), world.patience)

    @line_magic
    @magic_arguments()
    @argument("frame", nargs="?", type=int, default=0, metavar="FRAME",
              help="0: the innermost function that most ranks are in, 1: its caller, ...")  # fmt: skip
    @argument("name", nargs="?", default="", metavar="NAME",
              help="a variable to open, or a part of one: args, batch['image'], optimizer.param_groups[0]")  # fmt: skip
    def ddp_diff(self, line: str) -> FrameDiff:
        """Show the variables of one function on all ranks, side by side, and which differ; or what is inside one."""
        return self._world().diff(*arguments.frame_and_variable(line))

    # -- hold and step

    @line_magic
    @magic_arguments()
    @argument(
        "call",
        nargs="*",
        metavar="OP",
        help="operations, and optionally a sequence number as in findings: all_reduce #5; "
        "or a line or function: train.py:40, train_step()",
    )
    @argument("--ranks", **_RANKS, help="which ranks (default: all)")
    @argument("--seq", type=int, metavar="N", help="sequence number of the call in its group, from 1")
    @argument("--site", default="", metavar="S", help="train.py, train.py:91, or the name of a function")
    @argument("--group", default="", metavar="G", help="label, name or members (0,2) of a process group")
    @argument(
        "--when", default="", metavar="EXPR", help="condition, evaluated in the caller's frame: --when 'step == 5'"
    )
    @argument("--parted", action="store_true", help="stop where ranks part: at their first call from different places")
    @argument("--count", type=int, default=1, metavar="N", help="stop from the N-th time on")
    @argument(
        "--exception", action="store_true", help="stop where an exception leaves the program that nothing has handled"
    )
    @argument(
        "--differs",
        default="",
        metavar="EXPR",
        help="stop where its value is not the same on all ranks: --differs 'len(batch)'",
    )
    @argument("--keep", action="store_true", help="stay armed for later runs too")
    def ddp_hold(self, line: str) -> Holding:
        """Stop ranks before a collective, a line or a function: the next time, or the next that matches all conditions.

        It applies to the current cell, or else to the next one.
        """
        asked = parse(self.ddp_hold, line)
        place, calls = arguments.place_and_calls(asked.call)
        ops, number = arguments.call(calls)
        if number is not None and asked.seq is not None:
            raise UsageError(f"give the sequence number once, not both #{number} and --seq {asked.seq}.", "Remove one.")
        return self._world().hold(
            ops,
            ranks=asked.ranks,
            seq=asked.seq if number is None else number,
            site=asked.site,
            group=asked.group,
            when=asked.when,
            parted=asked.parted,
            line=place,
            count=asked.count,
            exception=asked.exception,
            differs=asked.differs,
            keep=asked.keep,
        )

    @line_magic
    @magic_arguments()
    @argument("words", nargs="*", metavar="N HOW",
              help="how many steps (default: 1), and of which kind: collective (default), over, into, out, iteration; or "
              "a line to go to: train.py:44")  # fmt: skip
    @argument("--ranks", **_RANKS, help="which ranks (default: all that are held)")
    def ddp_step(self, line: str) -> WorldStatus:
        """Let held ranks issue collectives, or make steps over lines, and stop them again."""
        asked = parse(self.ddp_step, line)
        return self._world().step(**arguments.step(asked.words), ranks=asked.ranks)

    @line_magic
    @magic_arguments()
    @argument("--ranks", **_RANKS, help="which ranks (default: all)")
    def ddp_resume(self, line: str) -> WorldStatus:
        """Let held ranks continue until a hold matches again; shows their state when they end, or after two seconds."""
        world = self._world()
        world.resume(parse(self.ddp_resume, line).ranks)
        if world.last_run is not None:
            world.last_run.wait(_LET_GO_S)
        return world.status()

    # -- release and repair

    @line_magic
    @magic_arguments()
    @argument("--rebuild", action="store_true", help="then create a new process group on all ranks; models are kept")
    def ddp_release(self, line: str) -> Freed:
        """Interrupt ranks that hang, wait, are held or compute. Processes and variables are kept."""
        asked = parse(self.ddp_release, line)
        world = self._world()
        freed = world.release()
        if asked.rebuild:
            freed = replace(freed, group="\n".join(world._groups.made(world.rebuild())))
        return freed

    @line_magic
    @magic_arguments()
    @argument(
        "ranks", nargs="?", **_RANKS, help="which ranks (default: those that are dead or stopped; else those that hang)"
    )
    def ddp_restart(self, line: str) -> WorldStatus:
        """Give ranks new processes, without their variables; the other ranks keep theirs."""
        asked = parse(self.ddp_restart, line)
        world = self._world()
        print(world.restart(asked.ranks))
        self.px.refresh()
        return world.status()

    # -- faults

    @line_magic
    @magic_arguments()
    @argument("words", nargs="*", metavar="KIND [NAME=VALUE]",
              help="the kind of fault, then its conditions (op=, seq=, site=, group=, step=, probability=, times=) and its "
              "parameters: delay seq=3 seconds=2")  # fmt: skip
    @argument("--ranks", **_RANKS, help="which ranks (default: all)")
    @argument("--keep", action="store_true", help="stay armed for later runs too")
    def ddp_inject(self, line: str) -> Injection | None:
        """Arm a fault on ranks, for the current cell or else for the next one; without arguments: list all faults."""
        asked = parse(self.ddp_inject, line)
        if not asked.words:
            rows = [
                (kind.name, kind.place, kind.what, kind.finding, ", ".join(one.name for one in kind.parameters))
                for kind in KINDS.values()
            ]
            kinds = Table("kinds of faults", ("fault", "where", "what", "finding", "parameters"), rows)
            html = markup.standalone(as_html.html(kinds), kinds.label)
            display({"text/plain": as_text.text(kinds), "text/html": html}, raw=True)
            return None
        kind, given = arguments.fault(asked.words)
        return self._world().inject(kind, ranks=asked.ranks, keep=asked.keep, **given)

    @line_magic
    @magic_arguments()
    def ddp_heal(self, line: str) -> None:
        """Disarm all faults. Effects that already happened stay."""
        parse(self.ddp_heal, line)
        self._world().heal()
        print("no fault is armed.")
