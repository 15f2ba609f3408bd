"""Answers requests on the control channel of the engine while the main thread hangs.

ipykernel serves the control channel from a thread of its own, so a rank that is blocked in a
collective still answers here, within milliseconds.
"""

from __future__ import annotations

import base64
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

from ddpnb.model.holds import Hold
from ddpnb.recorder import clock, inside, threads, unseen
from ddpnb.recorder.completion import completions
from ddpnb.recorder.device_reads import DeviceReads
from ddpnb.recorder.door import Door
from ddpnb.recorder.encoding import encodable
from ddpnb.recorder.evaluation import evaluate, sentence
from ddpnb.recorder.faults.faults import Faults
from ddpnb.recorder.main_wait import MACHINE, main_wait
from ddpnb.recorder.protocol import REPLY, REQUEST, VALUES
from ddpnb.recorder.replicas import Replicas
from ddpnb.recorder.tensors import Tensors


class _OwnStreams:
    """What ipykernel takes for ``sys``: the kernel's own standard streams, whatever a script makes of ``sys.stdout``.

    ipykernel flushes both after every message, on the control channel's thread as well. A stream that the
    script has closed would raise there, and one of its own make may wait for a lock that a rank which hangs holds.
    """

    def __init__(self) -> None:
        self.stdout, self.stderr = sys.stdout, sys.stderr

    def __getattr__(self, name: str) -> Any:
        return getattr(sys, name)


_READ_S = 50.0  # for a comparison of models on a device
_OF_A_RUN = ("hold", "unhold", "resuming", "resume", "inject", "heal")


class ControlChannel:
    """The requests that a rank serves. Requests and answers are plain JSON."""

    def __init__(self, door: Door, replicas: Replicas, faults: Faults) -> None:
        self._door = door
        self._replicas = replicas
        self._faults = faults
        #: called before the stacks are read; they raise nothing
        self.on_snapshot: list[Callable[[], None]] = []
        #: where the variables of cells live
        self.namespace: dict[str, Any] = {"__name__": "__main__"}
        self._reads = DeviceReads("ddpnb comparison")
        self._tensors = Tensors(replicas.models, lambda: self.namespace)
        self._run = 0  # the newest that has begun
        self._early: list[dict[str, Any]] = []  # requests for the next run
        self._beginning = threading.Lock()
        self._verbs: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "snapshot": self._snapshot,
            "compare": lambda _: self._of_models(lambda: {"models": self._replicas.models.exact()}),
            "hold": self._hold,
            "unhold": self._unhold,
            "hurry": self._hurry,
            "gate": lambda _: self._door.gate.state(),
            "step": self._step,
            "resuming": self._resuming,
            "resume": self._resume,
            "releasing": self._releasing,
            "release": self._release,
            "interrupt": self._interrupt,
            "released": self._released,
            "unreleased": self._unreleased,
            "cut": lambda content: {"connections": self._door.release.cut(content["connections"])},
            "inject": self._inject,
            "heal": self._heal,
            "faults": lambda _: {"faults": self._faults.to_json()},
            "evaluate": self._evaluate,
            "open": lambda content: inside.look(*(str(content[key]) for key in ("file", "function", "path"))),
            "completions": self._completions,
            "values": self._values,
            "tensor": self._tensors.answer,
            "tensors": self._tensors.names,
            "trace": self._trace,
            "clock": self._correct_clock,
            "traced": lambda _: {"traced": {str(m): t for m, t in self._replicas.tracing.traced.items()}},
        }

    def serve(self, verb: str, handler: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        """Answer one more kind of request."""
        self._verbs[verb] = handler

    def answer(self, content: dict[str, Any]) -> dict[str, Any]:
        """Serve one request; an internal error becomes part of the answer.

        Holds and faults for a run that has not begun on this rank are applied when it begins.
        """
        with self._beginning:
            run = content.get("run")
            if content.get("verb") in _OF_A_RUN and isinstance(run, int) and run > self._run:
                self._early.append(content)
                return {"status": "ok", "pid": os.getpid()}
        return self._obey(content)

    def begun(self, run: int) -> None:
        """A run has begun with the holds and faults of its order: apply the requests that came since."""
        with self._beginning:
            early, self._early, self._run = self._early, [], run
            for content in early:
                self._obey(content)

    def _obey(self, content: dict[str, Any]) -> dict[str, Any]:
        verb = self._verbs.get(str(content.get("verb")))
        if verb is None:
            return {"status": "error", "error": f"no such verb: {str(content.get('verb'))[:80]}"}
        try:
            return {"status": "ok", "pid": os.getpid(), **verb(content)}
        except Exception as error:
            return {"status": "error", "error": sentence(error)}

    def _snapshot(self, content: dict[str, Any]) -> dict[str, Any]:
        # Polling here makes the in-flight state right for calls that nobody in Python waits for.
        self._door.look()
        for look in self.on_snapshot:
            look()
        wait = main_wait()
        return {
            "gate": self._door.gate.state(),
            "stacks": threads.stacks(bool(content.get("locals", True)), values=bool(content.get("values"))),
            "waits_on": wait.words,
            "unseen": unseen.noticed(),
            "holders": list(wait.holders),
            "machine": MACHINE,
            "received": wait.received,
            "wakes_at": None if wait.wakes_at is None else clock.of_launcher(wait.wakes_at),
        }

    def _hold(self, content: dict[str, Any]) -> dict[str, Any]:
        self._door.groups.unhurried(True)
        if content.get("hold") is not None:
            self._door.gate.hold(Hold.from_json(content["hold"]), keep=bool(content.get("keep")))
        return {}

    def _unhold(self, content: dict[str, Any]) -> dict[str, Any]:
        self._door.gate.remove(Hold.from_json(content["hold"]))
        return {}

    def _hurry(self, _content: dict[str, Any]) -> dict[str, Any]:
        self._door.groups.unhurried(False)
        return {}

    def _correct_clock(self, content: dict[str, Any]) -> dict[str, Any]:
        clock.correct(int(content["ahead_ns"]))
        return {}

    def _step(self, content: dict[str, Any]) -> dict[str, Any]:
        self._door.gate.step(int(content["count"]))
        return {}

    def _resuming(self, _content: dict[str, Any]) -> dict[str, Any]:
        self._door.gate.resuming()
        return {}

    def _resume(self, _content: dict[str, Any]) -> dict[str, Any]:
        self._door.gate.resume()
        return {}

    def _release(self, content: dict[str, Any]) -> dict[str, Any]:
        free = self._door.release.free
        return {"connections": free(content["connections"], both_ways=bool(content.get("both_ways")))}

    def _releasing(self, content: dict[str, Any]) -> dict[str, Any]:
        self._door.release.ask(str(content["why"])[:500])
        self._door.gate.released()
        self._door.look()  # what is still in flight now does not complete by itself
        return {}

    def _interrupt(self, _content: dict[str, Any]) -> dict[str, Any]:
        self._door.release.interrupt()
        return {}

    def _unreleased(self, _content: dict[str, Any]) -> dict[str, Any]:
        self._door.release.clear()
        self._door.gate.released()
        return {}

    def _released(self, _content: dict[str, Any]) -> dict[str, Any]:
        self._door.release.let_go()
        self._door.release.closed()
        return {}

    def _inject(self, content: dict[str, Any]) -> dict[str, Any]:
        from ddpnb.model.faults import Fault

        self._faults.inject(Fault.from_json(content["fault"]), keep=bool(content["keep"]))
        return {}

    def _heal(self, content: dict[str, Any]) -> dict[str, Any]:
        from ddpnb.model.faults import Fault

        wanted = content.get("faults")
        armed = self._faults.to_json()
        self._faults.heal(None if wanted is None else [Fault.from_json(fault) for fault in wanted])
        return {"faults": armed}

    def _evaluate(self, content: dict[str, Any]) -> dict[str, Any]:
        expression, depth, timeout = str(content["expression"]), int(content["frame"]), float(content["timeout"])
        return evaluate(expression, depth, timeout, self.namespace)

    def _completions(self, content: dict[str, Any]) -> dict[str, Any]:
        return {"names": completions(self.namespace, str(content["owner"]), str(content["prefix"]))}

    def _values(self, content: dict[str, Any]) -> dict[str, Any]:
        def read() -> dict[str, Any]:
            raw = self._replicas.models.values(int(content["model"]), str(content["tensor"]), VALUES)
            return {"values": base64.b85encode(raw).decode()}

        return self._of_models(read)

    def _of_models(self, read: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """What is read from models; where a part of them is on a device, in a thread of its own."""
        tensors = [tensor for one in self._replicas.models.living() for tensor in one.tensors if tensor is not None]
        here = all(tensor.device.type == "cpu" for tensor in tensors)
        tensors.clear()
        return read() if here else self._reads.answer(read, _READ_S)

    def _trace(self, content: dict[str, Any]) -> dict[str, Any]:
        for model, turn in content["turns"].items():
            self._replicas.tracing.arm(int(model), int(turn), bool(content.get("modules")))
        return {}

    def register(self, kernel: Any) -> None:
        """Answer on the control channel of this IPython kernel."""

        async def handle(stream: Any, ident: Any, parent: dict[str, Any]) -> None:
            reply = self.answer(parent.get("content", {}))
            try:
                kernel.session.send(stream, REPLY, content=encodable(reply), parent=parent, ident=ident)
            except Exception as error:
                text = f"the answer could not be sent: {type(error).__name__}"
                content = {"status": "error", "error": text}
                kernel.session.send(stream, REPLY, content=content, parent=parent, ident=ident)

        kernel.control_handlers[REQUEST] = handle
        vars(sys.modules["ipykernel.kernelbase"])["sys"] = _OwnStreams()
