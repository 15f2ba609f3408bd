"""Probes of a bisection without processes: ranks run one after the other, with a stand-in for ``torch.distributed``.

The stand-in notes the lines that call a collective; the answer is the diagnosis of a recording that is written from them.
"""

from __future__ import annotations

import io
import os
import sys
import time
from contextlib import ExitStack, redirect_stderr
from types import ModuleType, SimpleNamespace
from unittest import mock

from ddpnb.recorder.process import components
from ddpnb.recording.calls import Site
from ddpnb.rules.diagnose import diagnose
from ddpnb.studies.bisection.probing import NOTHING, CommandProber, outcome
from tests.rules.recordings import Rank, record


class StandIn(ModuleType):
    """``torch.distributed`` on one rank; ``calls``: the operations with their lines."""

    def __init__(self, rank):
        super().__init__("torch.distributed")
        self.get_rank = lambda: rank
        self.calls: list[tuple[str, Site]] = []

    def init_process_group(self, backend):
        """A rank has nothing to wait for."""

    def all_reduce(self, tensor):
        self._note("all_reduce")

    def barrier(self):
        self._note("barrier")

    def _note(self, op):
        frame = sys._getframe(2)
        self.calls.append((op, Site(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)))


def recording_of(ranks, refusals=()):
    """Of ranks that made these calls: all wait in the first that one of them does not make.

    Args:
        ranks: the stand-in of each.
        refusals: what each has said when it refused its arguments.
    """
    size, completed = len(ranks), min(len(rank.calls) for rank in ranks)
    made = []
    for number, rank in enumerate(ranks):
        me = Rank(number, size)
        made.append(me)
        if refusals and refusals[number]:
            me.absent().writes(refusals[number]).exits(2)
            continue
        for op, site in rank.calls[:completed]:
            me.calls(op, site)
        if len(rank.calls) > completed:
            me.waits(*rank.calls[completed])
        else:
            me.finishes()
    return record(*made)


class ScriptedProber(CommandProber):
    """A launch command is taken for ``python LAUNCHER ARGS`` that runs ``train.py ARGS`` on two ranks."""

    def run(self, probe, environment=NOTHING):
        began, trying = time.monotonic(), self.trying(probe)
        with ExitStack() as stack:
            directory = self.directory
            if trying.commit is not None:
                directory = stack.enter_context(self.repository.checked_out(trying.commit))
            script, *arguments = trying.command if self.request.script else ("train.py", *trying.command[2:])
            size = int(trying.own.get("-n", self.request.size))
            path = os.path.join(directory, script)
            ranks = [StandIn(rank) for rank in range(size)]
            refusals = [self._run(path, arguments, rank, trying.environment) for rank in ranks]
            recording = recording_of(ranks, refusals)
            diagnosis = diagnose(recording)
            status = 3 if diagnosis.outcome == "hang" else 2 * any(refusals)
            run = SimpleNamespace(diagnosis=diagnosis, exit_status=status)
            return outcome(run, recording, directory, began)

    def _run(self, path, arguments, rank, environment):
        """What a rank says when it refuses its arguments."""
        torch, said = ModuleType("torch"), io.StringIO()
        torch.ones, torch.distributed = (lambda count: [1.0] * count), rank
        with (
            open(path) as file,
            mock.patch.dict(os.environ, {name: value for name, value in environment.items() if value is not None}),
            mock.patch.dict(sys.modules, {"torch": torch, "torch.distributed": rank}),
            mock.patch.object(sys, "argv", [path, *arguments]),
            redirect_stderr(said),
        ):
            for name in (name for name, value in environment.items() if value is None):
                os.environ.pop(name, None)
            try:
                exec(compile(file.read(), path, "exec"), {"__name__": "__main__"})  # noqa: S102
            except SystemExit:  # by argparse
                return said.getvalue()
        return said.getvalue()


class ScriptedWorld:
    """As much of a World as probes need; they run functions of a module whose variable ``dist`` is ``torch.distributed``."""

    patience, fence, closed = 3.0, "raise", False

    def __init__(self, module, size=4):
        self._module, self.size = module, size
        self._hangs = False
        self._own = SimpleNamespace(plan=SimpleNamespace(backend="gloo", chosen=True))
        self._ranks = SimpleNamespace(processes=SimpleNamespace(alive=lambda _: True))

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.closed = True

    def rebuild(self):
        assert not self._hangs, "ranks are still in the run before"

    def release(self):
        self._hangs = False

    def run(self, probe, stream, end_after_patience):
        ranks = [StandIn(rank) for rank in range(self.size)]
        for rank in ranks:
            getattr(self._module, "state", {}).clear()
            with mock.patch.object(self._module, "dist", rank), mock.patch.object(components, "forget_loaded"):
                probe()
        recording = recording_of(ranks)
        diagnosis = diagnose(recording, end_after_patience=end_after_patience)
        self._hangs = diagnosis.outcome == "hang"
        run = SimpleNamespace(
            diagnosis=diagnosis, outcome=diagnosis.outcome, exit_status=3 if self._hangs else 0, recording=recording
        )
        run.wait = lambda: run
        return run
