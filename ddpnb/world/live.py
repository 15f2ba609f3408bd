"""What one does to live ranks, however they were started: look at them, hold and step them, inject faults, release them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self

from ddpnb.errors import UsageError
from ddpnb.recording import arguments
from ddpnb.recording.faults import Fault
from ddpnb.recording.holds import Hold, is_place
from ddpnb.world import debugging
from ddpnb.world.breakpoints import Breakpoints, Holding
from ddpnb.world.debugging import Debugging
from ddpnb.world.faults import Faults, Injection
from ddpnb.world.inspection import InspectedRanks
from ddpnb.world.ranks import Ranks
from ddpnb.world.release import RELEASE_S, Freed, Releasing
from ddpnb.world.results import WorldStatus


class LiveRanks(InspectedRanks):
    """Ranks that live: those of a ``World``, or of a ``Job`` that was started elsewhere."""

    _name = "world"  # what examples call it

    def __init__(self, ranks: Ranks) -> None:
        # Panels and magics use these parts; users call the methods below.
        super().__init__(ranks)
        self._breakpoints = Breakpoints(ranks)
        self._faults = Faults(ranks)
        self._watched: list[str] = []  # expressions that the panels of ranks show
        self._releasing = Releasing(ranks, self._breakpoints, self._name, ranks.backend)

    def hold(
        self,
        before: str | Iterable[str] = (),
        *,
        ranks: int | Iterable[int] | None = None,
        seq: int | None = None,
        site: str = "",
        group: str = "",
        when: str = "",
        parted: bool = False,
        line: str = "",
        count: int = 1,
        exception: bool = False,
        differs: str = "",
        keep: bool = False,
    ) -> Holding:
        """Stop ranks before a collective or a line: the next one, or the next that matches all conditions.

        Variables of a held rank can be read and expressions evaluated in its frames. While a hold is armed, the
        time-outs of the process groups are suspended for new calls. A hold ends with the current run, or with
        the next run if none is in progress.

        Args:
            before: operation or operations, named as in findings: ``"all_reduce"``. Or a place, as for ``line``.
            ranks: which ranks; all by default.
            seq: sequence number of the call in its group, from 1: ``all_reduce #5`` is ``seq=5``.
            site: ``"train.py"``, ``"train.py:91"`` or the name of a function.
            group: label, name or members (``"0,2"``) of a process group.
            when: an expression, evaluated in the frame that issues the call: ``"step == 5"``.
            parted: stop where ranks part: at the first call that the ranks of its group make from different places in the
                program, before it hangs or mixes numbers. Only ``group``, ``ranks`` (who is compared) and ``keep`` go with
                it. Needs Python 3.12 or later.
            line: stop before a line, ``"train.py:40"``, or at the entry of a function, ``"train_step()"``. The others run on to
                their next collective, and wait there. ``when``, ``count`` and ``differs`` go with it. Needs Python 3.12.
            count: stop from this time on: 3 lets two pass.
            exception: stop where an exception is raised that nothing on the stack handles, with all variables as they are; where
                that cannot be known, behind the ``finally`` and ``with`` blocks that it has left. Needs Python 3.12.
            differs: an expression, evaluated on all ranks where they pass: stop where its value (a number, a text, a tensor, or a
                container of these) is not the same on all of them: ``"loss.item()"``. Of ranks that come one after the
                other, those stop that come after a difference is known; the first waits in its collective.
            keep: stay armed for later runs too.

        Returns:
            The armed hold, with ``wait()`` and ``remove()``.

        Raises:
            UsageError: an unknown rank or operation, an invalid expression, a line without code, or conditions that do not go
                together.
            WorldError: a rank is dead or unresponsive, or has not joined its job yet.

        Example:
            >>> world.hold("all_reduce", when="step == 5").wait(30)
            >>> world.hold("train.py:40", ranks=1, when="step == 5")
            >>> world.hold(differs="loss.item()")
            >>> world.hold(parted=True)
        """
        if isinstance(before, str) and is_place(before):
            if line:
                raise UsageError(f"There are two places: {before} and {line}.", "Arm a hold for each.")
            before, line = (), before
        texts = arguments.texts("before", before)
        hold = Hold(texts, seq, site, group, when, parted, line, count, exception, differs)
        return self._breakpoints.hold(hold, ranks, keep=keep)

    def step(
        self,
        n: int = 1,
        *,
        ranks: int | Iterable[int] | None = None,
        timeout: float = 5.0,
        how: str = "collective",
        to: str = "",
    ) -> WorldStatus:
        """Let held ranks issue ``n`` collectives, or make ``n`` steps over lines, and stop them again.

        Args:
            n: number of collectives or steps per rank.
            ranks: which ranks; all that are held by default.
            timeout: seconds to wait at most until they are held again, have ended, or wait for other ranks.
            how: ``"collective"``: stop before the next collective. Of your own code, from where a rank is held: ``"over"``
                or ``"line"``: before the next line, ``"into"``: before the first line of a function that this line
                calls, ``"out"``: behind the call of this function, ``"iteration"``: at the end of this iteration of
                the innermost loop around. A stop at a hold ends a step. Needs Python 3.12 or later.
            to: before this line, or at the entry of this function, in place of ``how``: ``"train.py:44"``.

        Returns:
            What every rank is doing then.

        Raises:
            UsageError: ``n`` is not a positive number, an unknown rank, or there is no such line or loop.
            WorldError: none of these ranks is held.

        Example:
            >>> world.step(ranks=1).held
            (0, 1)
            >>> world.step(ranks=1, how="over")
            >>> world.step(to="train.py:44")
        """
        return self._breakpoints.step(n, ranks, timeout, how, to)

    def resume(self, ranks: int | Iterable[int] | None = None) -> None:
        """Let held ranks continue until a hold matches again.

        Args:
            ranks: which ranks; all by default.

        Raises:
            UsageError: unknown rank.
            WorldError: the World is closed, or a rank is dead or unresponsive.

        Example:
            >>> world.resume()
        """
        self._breakpoints.resume(ranks)

    def unhold(self) -> None:
        """Disarm all holds, also those that another program or an earlier kernel has armed. Held ranks stay held until ``resume()``.

        Raises:
            WorldError: the World is closed, or a rank is unresponsive.

        Example:
            >>> world.unhold()
            >>> world.resume()
        """
        self._breakpoints.unhold()

    def inject(
        self, fault: str | Fault, *, ranks: int | Iterable[int] | None = None, keep: bool = False, **given: Any
    ) -> Injection:
        """Arm a fault on ranks: at a collective, in the environment, in the data or in the model.

        It applies to the current run, or else to the next one, and ends with it. A fault of the environment
        applies to the next start-up: of a script, of ``init()``, or of a repeated step of it.

        Args:
            fault: name of a kind (``ddpnb.recording.faults.KINDS`` lists them), or a ``Fault``.
            ranks: which ranks; all by default.
            keep: stay armed for later runs too.
            given: its conditions (``op``, ``seq``, ``site``, ``group``, ``step``, ``probability``, ``seed``,
                ``times``), and parameters of its kind.

        Returns:
            The armed fault, with ``finding`` and ``heal()``.

        Raises:
            UsageError: unknown kind, condition, parameter, operation or rank.
            WorldError: a rank is dead or unresponsive.

        Example:
            >>> world.inject("skip", ranks=1, op="all_reduce", seq=3).finding
            'DDP301'
        """
        return self._faults.inject(fault, ranks, keep=keep, conditions=given)

    def heal(self, injection: Injection | None = None) -> None:
        """Disarm one fault, or all. Effects that already happened stay: a changed parameter is not restored.

        Unresponsive ranks keep their faults until they are restarted.

        Args:
            injection: what ``inject()`` returned; None: all faults.

        Raises:
            UsageError: anything else.
            WorldError: the World is closed.

        Example:
            >>> world.heal()
        """
        self._faults.heal(injection)

    def release(self, timeout: float = RELEASE_S) -> Freed:
        """Interrupt ranks that hang, wait, are held or compute: the exception ``Released`` ends what they run.

        Their processes, variables and models are kept, and so is the process group if no collective was interrupted.
        Otherwise it is closed on all ranks, and the next cell or function creates it again; models that are wrapped in
        ``DistributedDataParallel`` then use the new one. If sub-groups or other objects use the old one, that is left
        to ``rebuild()``, and the result names them.

        Args:
            timeout: seconds to wait at most.

        Returns:
            The ranks that are idle again, why others are not, and what became of the process group.

        Raises:
            UsageError: ``timeout`` is no number of seconds.
            WorldError: the World is closed, or its controller does not run.

        Example:
            >>> world.release().ranks
            (0, 1, 2, 3)
        """
        return self._releasing.release(timeout)

    def debugpy(
        self,
        ranks: int | Iterable[int] | None = None,
        *,
        file: str | os.PathLike[str] | None = None,
        timeout: float = 60.0,
    ) -> Debugging:
        """Start debugpy in ranks, and write a launch configuration that attaches an IDE to all of them with one F5.

        A rank that the IDE has stopped counts as held: the others wait in their next collective, no time-out fires, and it is
        not reported as a hang. When the IDE disconnects, it continues. debugpy listens on the loopback address of the rank's
        host until the rank ends; who can connect to it can run code as you.

        Args:
            ranks: which ranks; all by default.
            file: the configuration of VS Code; None: ``.vscode/launch.json`` in the working directory. Other configurations
                and comments in it are kept; where it cannot be read, a file beside it is written.
            timeout: seconds that debugpy may take to start.

        Returns:
            The port of each rank, and the file.

        Raises:
            UsageError: an unknown rank, or the job is not recorded.
            WorldError: debugpy is not installed for a rank's interpreter, or did not start.
            CannotWrite: the file cannot be written.

        Example:
            >>> world.debugpy(ranks=[0, 1]).ports
            {0: 40213, 1: 38127}
        """
        return debugging.start(self._ranks, ranks, file, timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End what this object has started."""
        raise NotImplementedError
