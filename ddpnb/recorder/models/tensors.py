"""Answers questions about a tensor of this rank while its main thread trains, waits or hangs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any

from ddpnb.recorder.models.device_reads import DeviceReads
from ddpnb.recorder.models.tensor_paths import NotFound, of_model, resolve, similar, tensors_in, tensors_of
from ddpnb.recorder.models.tensor_values import Reading, plain
from ddpnb.recorder.models.tracked_model import Watched
from ddpnb.recorder.models.tracked_models import Followed
from ddpnb.recorder.stacks.evaluation import names_in
from ddpnb.recorder.stacks.user_frames import frames_of, is_user_frame, looked_at
from ddpnb.recording.names import one_line
from ddpnb.recording.replicas import UNWRAPPED
from ddpnb.recording.tensors import BINS, MAX_NAME, path
from ddpnb.recording.verbs import Done, Histogram, Piece, Pieces, Tensor

_OFFERED = 1000  # names
_PIECES = 64  # whose elements are sent in one answer


class Tensors:
    """The tensors of a rank, by name.

    Args:
        models: those that the replica watch follows.
        namespace: gives the variables of cells, for a rank that is idle.
    """

    def __init__(self, models: Followed, namespace: Callable[[], Mapping[str, Any]]) -> None:
        self._models = models
        self._namespace = namespace
        self._reads = DeviceReads("ddpnb tensor")

    def answer(self, asked: Tensor | Histogram | Pieces) -> Done:
        """What was asked for; or ``error``.

        It runs in a thread of its own: a read that waits for a device must not block the control channel.
        """

        def read() -> dict[str, Any]:
            try:
                return self._read(asked, time.monotonic() + asked.timeout)
            except NotFound as error:
                return {"error": str(error)}
            except TimeoutError:
                return {
                    "error": f"it could not be read within {asked.timeout:g} s. Raise timeout=, or choose a part by an index."
                }

        return asked.ANSWER(**self._reads.answer(read, asked.timeout, grace_s=0.5))

    def names(self, frame: int | None) -> tuple[str, ...]:
        """The names of tensors in a frame, and of the followed models."""
        found: list[str] = []
        if frame is not None:
            variables, _, _ = self._variables(frame, local=True)
            found += tensors_in(variables)
        for watched in self._models.living():
            found += islice(tensors_of(watched, self._models.optimizers), _OFFERED)
        return tuple(one_line(name[:MAX_NAME]) for name in dict.fromkeys(found))[:_OFFERED]

    def _read(self, asked: Tensor | Histogram | Pieces, end: float) -> dict[str, Any]:
        name = asked.name[:MAX_NAME]
        value, where, step = self._find(name, asked.frame)
        tensor, trains, part = plain(value, one_line(name))
        reading = Reading(tensor, end)
        if isinstance(asked, Histogram):
            return {"counts": tuple(reading.counts(asked.low, asked.high, BINS))}
        if isinstance(asked, Pieces):
            return {
                "pieces": tuple(Piece(code=code, values=held) for code, held in reading.values(asked.numbers[:_PIECES]))
            }
        facts, digests = reading.facts()
        facts |= {
            "where": f"{where}, {part}" if part else where,
            "dtype": str(tensor.dtype).removeprefix("torch."),
            "shape": list(tensor.shape),
            "device": str(tensor.device),
            "requires_grad": trains,
            "elements": reading.elements,
            "step": step,
        }
        return {"numbers": facts, "digests": digests}

    def _find(self, name: str, frame: int | None) -> tuple[Any, str, int | None]:
        """The tensor of this name, where it was found, and the optimizer steps of its model."""
        steps, where, function, variables = path(name) if frame is not None else None, "", "", {}
        if frame is not None:
            variables, where, function = self._variables(frame)
        if steps is not None and steps[0] in variables:
            return resolve(variables, *steps), where, None
        models = self._models.living()
        for watched in models:
            found = of_model(watched, name, self._models.optimizers)
            if found is not None:
                return found, _described(watched), watched.steps
        known = dict.fromkeys(one for watched in models for one in watched.names)
        first = one_line((steps[0] if steps is not None else name)[:80])
        has_none = "no followed model has a tensor of this name" if models else "no model is followed"
        variable = (
            f"there is no variable {first} in {function or 'the variables of cells (the rank is idle)'}, and "
            if frame is not None
            else ""
        )
        raise NotFound(f"{variable}{has_none}.{similar(first, variables) or similar(name, known)}")

    def _variables(self, depth: int, *, local: bool = False) -> tuple[dict[str, Any], str, str]:
        """The variables of a user's frame, the frame in words, and its function; of an idle rank, those of cells."""
        frames = [frame for frame in frames_of(looked_at()) if is_user_frame(frame)]
        if not frames:
            return dict(self._namespace()), "the variables of cells", ""
        if depth >= len(frames):
            raise NotFound(f"there is no frame {depth}: the rank is in {len(frames)} frames of user code.")
        frame = frames[depth]
        code = frame.f_code
        function = one_line(code.co_name[:80])
        where = f"{code.co_filename}:{frame.f_lineno}, {function}"
        return dict(frame.f_locals) if local else names_in(frame), where, function


def _described(watched: Watched) -> str:
    if watched.number >= UNWRAPPED:
        return f"the parameters of optimizer {watched.number - UNWRAPPED}"
    return f"model {watched.number}"
