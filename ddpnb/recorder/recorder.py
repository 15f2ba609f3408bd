"""What records in a process that is a rank: its black box, door, hooks and control channel."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterable, Mapping
from typing import Any

from ddpnb.recorder.channel.control_channel import ControlChannel
from ddpnb.recorder.collectives.door import Door
from ddpnb.recorder.collectives.phases import Phases
from ddpnb.recorder.collectives.store_waits import StoreWaits
from ddpnb.recorder.events.compilations import Compilations
from ddpnb.recorder.events.data import Data
from ddpnb.recorder.events.exceptions import FailedThreads
from ddpnb.recorder.events.hooks import Hooks, put_in_place
from ddpnb.recorder.events.torch_names import note
from ddpnb.recorder.events.training import Training
from ddpnb.recorder.faults.faults import Faults
from ddpnb.recorder.files.blackbox import BlackBox
from ddpnb.recorder.holds.ide import Ide
from ddpnb.recorder.models.replicas import Replicas
from ddpnb.recorder.models.replicated import Replicated
from ddpnb.recorder.paths.path import PathRecorder
from ddpnb.recorder.process.own_ranks import OwnRanks
from ddpnb.recording.events.runs import ScriptEnded
from ddpnb.recording.faults import Fault
from ddpnb.recording.holds import Hold


class Recorder:
    """The hooks of this process. There is one.

    Args:
        folder: where the black boxes of the ranks and the files of the fence are.
        rank: the rank of this process.

    Raises:
        OSError: there is no room for its files.
    """

    def __init__(self, folder: str, rank: int) -> None:
        self.folder = folder
        self.rank = rank
        self.box = BlackBox(os.path.join(folder, f"rank{rank}.box"), rank)
        self.door = Door(self.box, folder)
        self.door.flight.has_ended = self.door.groups.has_ended
        self.phases = Phases(self.box, self.door)
        #: all that is watched outside of the door; each set of hooks falls alone when it fails
        self.replicas = Replicas(self.box, self.door, folder, rank)
        self.phases.on_group.append(self.replicas.last_look)
        self.data = Data(self.box)
        self.path = PathRecorder(self.box, self.door, self.phases, self.data, folder, rank)
        failed_threads = FailedThreads(self.box)
        training = Training(self.box, self.replicas.unsynced)
        self.replicas.on_resumed.append(training.resumed)
        self.hooks: list[Hooks] = [
            self.phases,
            training,
            self.replicas,
            self.data,
            self.path,
            failed_threads,
            Replicated(self.box),
            Compilations(self.box),
            StoreWaits(self.box),
        ]
        self.faults = Faults(self.box, self.door, rank)
        self.control = ControlChannel(self.door, self.replicas, self.faults)
        self.control.on_snapshot.append(self.path.write)
        self.control.count = self.box.count_own
        Ide(self.box, self.door.gate, self.control.serve)
        note(self.box, rank)
        self.door.open()
        put_in_place(*self.hooks)
        # A forked child (a data loader's worker) shares the box's memory: it must not write there.
        # Nothing of torch may be touched in it, though: to drop a Work or to take a kernel away
        # where the threads of the parent do not exist is a segmentation fault now and then.
        os.register_at_fork(after_in_child=self._forked)

    def watch_own_ranks(self) -> None:
        """Note processes that the script starts as ranks: where ddpnb has started this one, nobody watches them."""
        own = OwnRanks(self.box)
        put_in_place(own)
        self.hooks.append(own)

    def _forked(self) -> None:
        self.box.silence()
        gc.freeze()  # what is garbage here is so by its parent: a model's group would wait for threads that are not there

    def begin_run(self, number: int, fence: str, *, keep: bool = False) -> None:
        """A run begins; ``keep``: with the process groups of the last one."""
        self.door.new_run(number, fence, keep=keep)
        for hooks in self.hooks:
            hooks.new_run()
        self.replicas.begin(number)
        self.path.begin(number)

    def finish(self, *, raised: bool) -> None:
        """The program is over: end what is recorded of it; ``raised``: by an exception."""
        self.data.finish()
        self.path.finish()
        self.door.find_left()
        if not raised:  # then a call that failed would look completed
            self.door.flight.drain(0.1)

    def ended(self, ending: Mapping[str, Any], name: str = "", place: dict[str, Any] | None = None) -> None:
        """The run is over; ``name``, ``place``: of one whose state another may share (``Replicas.finish``)."""
        self.replicas.finish(name, place)
        self.door.gate.end_of_run(ended=True)
        self.faults.end_of_run()
        self.box.emit(ScriptEnded(how=ending["how"], code=ending["code"]))

    def arm(self, run: int, holds: Iterable[Any], faults: Iterable[Any], *, unhurried: bool) -> None:
        """Arm the holds and faults of a run, as JSON, each with whether it stays; those of an earlier one are removed.

        ``unhurried``: time-outs are suspended, since this or another rank is held or may be.
        """
        self.door.gate.end_of_run()
        self.door.groups.unhurried(unhurried)
        self.faults.forget()
        for hold, keep in holds:
            self.door.gate.hold(Hold.from_json(hold), keep=keep)
        for fault, keep in faults:
            self.faults.inject(Fault.from_json(fault), keep=keep)
        self.control.begun(run)
