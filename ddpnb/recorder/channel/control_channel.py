"""What a rank answers to the requests that reach its socket (``socket_channel``), while its main thread hangs."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

from ddpnb.errors import UsageError
from ddpnb.recorder.channel import threads
from ddpnb.recorder.channel.completion import completions
from ddpnb.recorder.channel.main_wait import MACHINE, main_wait
from ddpnb.recorder.collectives import unseen
from ddpnb.recorder.collectives.door import Door
from ddpnb.recorder.faults.faults import Faults
from ddpnb.recorder.files import clock
from ddpnb.recorder.holds.code_lines import located
from ddpnb.recorder.models.device_reads import DeviceReads
from ddpnb.recorder.models.replicas import Replicas
from ddpnb.recorder.models.tensors import Tensors
from ddpnb.recorder.stacks import inside
from ddpnb.recorder.stacks.evaluation import evaluate, sentence
from ddpnb.recording import verbs
from ddpnb.recording.faults import Fault
from ddpnb.recording.holds import Hold
from ddpnb.recording.protocol import VALUES
from ddpnb.recording.verbs import A, Done, Request

_READ_S = 50.0  # for a comparison of models on a device


class ControlChannel:
    """The requests that a rank serves (``verbs``), as JSON."""

    def __init__(self, door: Door, replicas: Replicas, faults: Faults) -> None:
        self._door = door
        self._replicas = replicas
        self._faults = faults
        #: called before the stacks are read; they raise nothing
        self.on_snapshot: list[Callable[[], None]] = []
        #: called before and after a request is served, in its thread: counts what that takes
        self.count: Callable[[], object] = int
        #: where the variables of cells live
        self.namespace: dict[str, Any] = {"__name__": "__main__"}
        self._reads = DeviceReads("ddpnb comparison")
        self._tensors = Tensors(replicas.models, lambda: self.namespace)
        self._run = 0  # the newest that has begun
        self._early: list[Request[Any]] = []  # requests for the next run
        self._beginning = threading.Lock()
        gate, release = door.gate, door.release
        self._handlers: dict[type[Request[Any]], Callable[[Any], Any]] = {
            verbs.Snapshot: self._snapshot,
            verbs.Evaluate: self._evaluate,
            verbs.Open: lambda asked: verbs.Opened(**inside.look(asked.file, asked.function, asked.path)),
            verbs.Completions: lambda asked: verbs.Names(
                names=(*completions(self.namespace, asked.owner, asked.prefix),)
            ),
            verbs.Gate: lambda _: verbs.GateState(**gate.state()),
            verbs.Hold: self._hold,
            verbs.Unhold: lambda asked: gate.remove(None if asked.hold is None else Hold.from_json(asked.hold)),
            verbs.Hurry: lambda _: door.groups.unhurried(False),
            verbs.Locate: lambda asked: located(asked.line),
            verbs.Step: self._step,
            verbs.Resuming: lambda _: gate.resuming(),
            verbs.Resume: lambda _: gate.resume(),
            verbs.Inject: lambda asked: faults.inject(Fault.from_json(asked.fault), keep=asked.keep),
            verbs.Heal: self._heal,
            verbs.Faults: lambda _: verbs.ArmedFaults(
                faults=tuple(verbs.FaultState(**one) for one in faults.to_json())
            ),
            verbs.Releasing: self._releasing,
            verbs.Interrupt: lambda _: release.interrupt(),
            verbs.Release: lambda asked: release.free(asked.connections, both_ways=asked.both_ways),
            verbs.Released: self._released,
            verbs.Unreleased: self._unreleased,
            verbs.Cut: lambda asked: release.cut(asked.connections),
            verbs.Compare: lambda _: verbs.Models(**self._of_models(self._compare)),
            verbs.Trace: self._trace,
            verbs.Traces: self._traces,
            verbs.Values: lambda asked: verbs.Elements(**self._of_models(lambda: self._values(asked))),
            verbs.Tensor: self._tensors.answer,
            verbs.Histogram: self._tensors.answer,
            verbs.Pieces: self._tensors.answer,
            verbs.Tensors: lambda asked: verbs.Names(names=self._tensors.names(asked.frame)),
            verbs.Clock: lambda asked: clock.correct(asked.ahead_ns),
        }

    def serve(self, kind: type[Request[A]], handler: Callable[[Any], A]) -> None:
        """Answer one more kind of request."""
        self._handlers[kind] = handler

    def answer(self, message: dict[str, Any]) -> dict[str, Any]:
        """Serve one request; an internal error becomes part of the answer.

        Holds and faults for a run that has not begun on this rank are applied when it begins.
        """
        self.count()
        try:
            return self._served(message)
        finally:
            self.count()

    def _served(self, message: dict[str, Any]) -> dict[str, Any]:
        try:
            request = verbs.requested(message)
        except ValueError as error:
            return verbs.reply(Done(error=str(error)))
        with self._beginning:
            if isinstance(request, verbs.OfARun) and request.run > self._run:
                self._early.append(request)
                return verbs.reply(Done())
        return verbs.reply(self.obey(request))

    def begun(self, run: int) -> None:
        """A run has begun with the holds and faults of its order: apply the requests that came since."""
        with self._beginning:
            early, self._early, self._run = self._early, [], run
            for request in early:
                self.obey(request)

    def obey(self, request: Request[A]) -> A | Done:
        """Serve one request of this process."""
        try:
            done = self._handlers[type(request)](request)
        except Exception as error:
            return Done(error=sentence(error))
        return done if isinstance(done, Done) else Done()

    def _snapshot(self, asked: verbs.Snapshot) -> verbs.Looked:
        # Polling here makes the in-flight state right for calls that nobody in Python waits for.
        self._door.look()
        for look in self.on_snapshot:
            look()
        wait = main_wait()
        return verbs.Looked(
            pid=os.getpid(),
            machine=MACHINE,
            stacks=threads.stacks(asked.locals, values=asked.values),
            unseen=unseen.noticed(),
            waits_on=wait.words,
            holders=wait.holders,
            received=wait.received,
            wakes_at=None if wait.wakes_at is None else clock.of_launcher(wait.wakes_at),
        )

    def _evaluate(self, asked: verbs.Evaluate) -> verbs.Evaluated:
        return verbs.Evaluated(**evaluate(asked.expression, asked.frame, asked.timeout, self.namespace))

    def _hold(self, asked: verbs.Hold) -> None:
        self._door.groups.unhurried(True)
        if asked.hold is not None:
            self._door.gate.hold(Hold.from_json(asked.hold), keep=asked.keep)

    def _step(self, asked: verbs.Step) -> verbs.Stepped:
        self._door.groups.unhurried(True)
        try:
            if asked.how != "collective" or asked.to:
                held = self._door.gate.step_lines(asked.how, asked.count, asked.to)
                return verbs.Stepped(held=bool(held), free=held is None)
            self._door.gate.step(asked.count)
        except UsageError as error:
            return verbs.Stepped(error=f"{error.what} {error.hint}".strip().rstrip("."))
        return verbs.Stepped()

    def _heal(self, asked: verbs.Heal) -> None:
        self._faults.heal(None if asked.faults is None else [Fault.from_json(one) for one in asked.faults])

    def _releasing(self, asked: verbs.Releasing) -> None:
        self._door.release.ask(asked.why[:500])
        self._door.gate.released()
        self._door.look()  # what is still in flight now does not complete by itself

    def _unreleased(self, _asked: verbs.Unreleased) -> None:
        self._door.release.clear()
        self._door.gate.released()

    def _released(self, _asked: verbs.Released) -> None:
        self._door.release.let_go()
        self._door.release.closed()

    def _of_models(self, read: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """What is read from models; where a part of them is on a device, in a thread of its own."""
        tensors = [tensor for one in self._replicas.models.living() for tensor in one.tensors if tensor is not None]
        here = all(tensor.device.type == "cpu" for tensor in tensors)
        tensors.clear()
        return read() if here else self._reads.answer(read, _READ_S)

    def _compare(self) -> dict[str, Any]:
        return {"models": tuple(verbs.Model(**one) for one in self._replicas.models.exact())}

    def _values(self, asked: verbs.Values) -> dict[str, Any]:
        return {"values": self._replicas.models.values(asked.model, asked.tensor, VALUES)}

    def _trace(self, asked: verbs.Trace) -> None:
        for model, turn in asked.turns.items():
            self._replicas.tracing.arm(int(model), turn, asked.modules)

    def _traces(self, _asked: verbs.Traces) -> verbs.Traced:
        traced = dict(self._replicas.tracing.traced)
        return verbs.Traced(models={str(number): verbs.Model(**row) for number, row in traced.items()})
