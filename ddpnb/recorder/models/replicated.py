"""Tensors that a program says are the same on several ranks: what tensor-parallel layers take as their input.

torch does not check it (``DTensor.from_local(..., run_check=False)``); with other inputs on each rank the layers compute
nonsense, without a word.
"""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from ddpnb.recorder.events.hooks import Hooks
from ddpnb.recorder.events.inputs import beginning
from ddpnb.recorder.events.torch_names import has
from ddpnb.recorder.files.blackbox import BlackBox
from ddpnb.recording.events.data import ReplicatedTensor

_FIRST, _LAST = 4, 64  # of each group: the first are recorded, and then at powers of two
_DIMENSIONS = 8


class Replicated(Hooks):
    """Records the first tensors that are declared the same on several ranks."""

    def __init__(self, box: BlackBox) -> None:
        super().__init__(box)
        self._made: Counter[tuple[int, ...]] = Counter()
        self._hooked = False

    def new_run(self) -> None:
        super().new_run()
        self._made.clear()

    def install(self) -> None:
        # torch loads the class only when it is asked for; who makes a mesh is about to.
        self.after(DeviceMesh, "__init__", self._mesh_made)
        if "torch.distributed.tensor" in sys.modules:
            self._hook()

    def _mesh_made(self, *_: Any, **__: Any) -> None:
        if not self._hooked:
            self._hook()

    def _hook(self) -> None:
        self._hooked = True
        if not has("torch.distributed.tensor.DTensor.from_local"):
            return
        from torch.distributed.tensor import DTensor

        self.before(DTensor, "from_local", self._declared)

    def _declared(
        self, local_tensor: Any, device_mesh: Any = None, placements: Any = None, *, run_check: bool = False, **_: Any
    ) -> None:
        if device_mesh is None or run_check:
            return
        for dimension in range(device_mesh.ndim):
            replicated = placements is None or placements[dimension].is_replicate()
            if not replicated or device_mesh.size(dimension) < 2:
                continue
            ranks = tuple(dist.get_process_group_ranks(device_mesh.get_group(dimension)))
            self._made[ranks] += 1
            number = self._made[ranks]
            if number <= _FIRST or (number <= _LAST and number & (number - 1) == 0):
                digest = beginning(local_tensor)
                if digest:
                    shape = tuple(local_tensor.shape)[:_DIMENSIONS]
                    self.emit(ReplicatedTensor(number=number, ranks=ranks, digest=f"{digest:x}", shape=shape))
