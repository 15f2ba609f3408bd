"""Whether the program changes a tensor in place between an asynchronous call and its wait.

Until then the content is undefined. Torch counts the changes of a tensor in its ``_version``: it is read when the call is
issued and when it is waited for. Only calls that are asynchronous where they were first seen are looked at, as others wait
at once; of tensors on the CPU, as gloo itself changes those of a GPU; and of no views, whose number counts the changes of
their base.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from functools import partial
from types import FrameType
from typing import Any

import torch

from ddpnb.recorder.events.hooks import place
from ddpnb.recorder.files.blackbox import BlackBox
from ddpnb.recording.calls import Site
from ddpnb.recording.events.runs import Caller, ChangedInFlight

_ALWAYS = ("isend", "irecv")  # functions of torch.distributed that are asynchronous
_OPERATIONS = frozenset(
    {"all_reduce", "broadcast", "reduce", "all_gather", "all_gather_into_tensor", "gather", "send", "recv"}
)
_CALLS, _TENSORS, _SITES = 10_000, 16, 20  # that are looked at: at a time, of a call, and that are recorded in a run
_FRAMES = 12  # between the user's line and the call


def is_asynchronous(caller: FrameType | None, user: FrameType) -> bool:
    """Whether the call that is made in the frame ``caller`` for the user's frame returns before it is complete."""
    if caller is user:
        return True  # a method of the group gives a Work
    frame = caller
    for _ in range(_FRAMES):
        if frame is None or frame is user:
            return False
        code = frame.f_code
        if code.co_name in _ALWAYS or ("async_op" in code.co_varnames and frame.f_locals.get("async_op")):
            return True
        frame = frame.f_back
    return False


class InUse:
    """The tensors of asynchronous calls that were not waited for."""

    def __init__(self, box: BlackBox) -> None:
        self._box = box
        #: the string numbers of the places of asynchronous calls: the door reads it at every call
        self.sites: dict[int, Site] = {}
        #: by the id of a Work
        self.calls: dict[int, tuple[weakref.ref[Any], str, Site, list[tuple[weakref.ref[torch.Tensor], int]]]] = {}
        self._said: set[Site] = set()

    def new_run(self) -> None:
        self.calls.clear()
        self._said.clear()

    def began(self, work: Any, operation: str, site: int, tensors: Sequence[torch.Tensor]) -> None:
        """A call was issued. Neither its Work nor its tensors are kept."""
        if operation not in _OPERATIONS or len(self.calls) >= _CALLS:
            return
        known = [
            (weakref.ref(tensor), tensor._version)
            for tensor in tensors[:_TENSORS]
            if type(tensor) in (torch.Tensor, torch.nn.Parameter)
            and tensor.is_cpu
            and not tensor.is_inference()
            and not tensor._is_view()
        ]
        if known:
            key = id(work)
            gone = partial(_forget, self.calls, key)
            self.calls[key] = weakref.ref(work, gone), operation, self.sites[site], known

    def waited(self, work: Any) -> None:
        """The program begins to wait for a call."""
        reference, operation, site, known = self.calls.pop(id(work), (None, "", None, ()))
        if reference is None or site is None or reference() is not work or site in self._said:
            return
        for tensor, version in known:
            changed = tensor()
            if changed is not None and changed._version != version and len(self._said) < _SITES:
                self._said.add(site)
                here = place(3)
                waited = Caller(file=here.file, line=here.line, function=here.function)
                self._box.emit(ChangedInFlight(operation=operation, waited=waited, site=site))
                return

    def over(self, work: Any) -> None:
        """The program knows in another way that the call is complete, or may."""
        self.calls.pop(id(work), None)


def _forget(calls: dict[int, Any], key: int, _reference: object) -> None:
    calls.pop(key, None)
