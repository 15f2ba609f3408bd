"""Events of models, optimizers and checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from ddpnb.recording.events.base import Attempt, Event, event, fact


@event("model wrapped")
class ModelWrapped(Attempt):
    wrapper: str = ""
    parameters: int = 0


@event("model not described")
class ModelNotDescribed(Event):
    """There was no room for the file that describes a model."""

    number: int = 0
    error: str = ""


@event("buffers synced")
class BuffersSynced(Event):
    """Whether a wrapper broadcasts the buffers of its model before a forward."""

    model: int | None = None
    synced: bool = True


@event("loss not finite")
class LossNotFinite(Event):
    """The losses were no longer finite, of a model that is not looked at: sharded, or before its first optimizer step.

    ``backward``: the number of the first such backward pass; ``loss``: of the next one.
    """

    loss: str = ""
    backward: int = 0


@event("parameters frozen")
class ParametersFrozen(Event):
    """Parameters that no longer required a gradient when a forward failed."""

    model: int | None = None
    names: tuple[str, ...] = ()
    count: int = 0


@event("parameters replaced")
class ParametersReplaced(Event):
    """Parameters in the module that were not there when it was wrapped."""

    model: int | None = None
    names: tuple[str, ...] = ()


@event("attribute on wrapper")
class AttributeOnWrapper(Event):
    """An attribute of the module was set on its wrapper."""

    name: str = "?"


@event("comm hook")
class CommHook(Event):
    """``hook``: its full name; ``settings``: the plain values of its closure and its state."""

    hook: str = ""
    state_class: str = fact("state", "")
    settings: Mapping[str, str] = field(default_factory=dict[str, str])


@event("sync batchnorm")
class SyncBatchNormConverted(Event):
    """``wrapped``: it was the wrapper that was converted."""

    wrapped: bool = False
    layers: int = 0


@event("optimizer")
class OptimizerSeen(Event):
    """How the parameters of an optimizer and those that a model trains cover each other.

    ``strangers``: held, but not of the model. ``missing``: trained, but not held. ``copies``: none is held, but all of
    the same shapes. ``idle``: strangers that have had no gradient in any step: those of another model have some, tensors
    that nothing uses any more have none; None: not known. ``number``: of ``OptimizerMade``; a later one replaces an earlier.
    """

    optimizer: str = "?"
    model: int | None = None
    parameters: int = 0
    strangers: int = 0
    missing: tuple[str, ...] = ()
    copies: bool = False
    idle: int | None = None
    number: int = -1


@event("optimizer made")
class OptimizerMade(Event):
    """Where an optimizer was made, and its ``settings`` then. ``number``: of this rank's optimizers and scalers."""

    number: int = -1
    class_name: str = fact("class", "")
    settings: Mapping[str, float] = field(default_factory=dict[str, float])


@event("scheduler made")
class SchedulerMade(Event):
    """``optimizer``: the number of the one that it schedules."""

    class_name: str = fact("class", "")
    optimizer: int = -1


@event("scheduler stepped")
class SchedulerStepped(Event):
    """A line that steps a scheduler, once for each optimizer; how often it did is in the samples of gradients."""

    class_name: str = fact("class", "")
    optimizer: int = -1


@event("scaler made")
class ScalerMade(Event):
    """Where a GradScaler was made. ``number``: of this rank's optimizers and scalers."""

    number: int = -1
    init_scale: float = 0.0  # 0: it is turned off


@event("no_sync entered")
class NoSyncEntered(Event):
    """A line that turns off the synchronisation of a wrapped model; which forwards it concerned is in their samples.

    ``way``: how it does that.
    """

    model: int = -1
    way: str = "no_sync()"


@event("parameters ignored")
class ParametersIgnored(Event):
    """Parameters and buffers that are excluded from a wrapper."""

    names: tuple[str, ...] = ()
    count: int = 0


@event("checkpoint saved")
class CheckpointSaved(Event):
    path: str = ""
    keys: tuple[str, ...] = ()


@event("checkpoint read")
class CheckpointRead(Event):
    """``numbers``: the whole numbers in it: its epoch, its step, its place in the data.

    ``generators``: the keys of states of random generators.
    """

    path: str = ""
    keys: tuple[str, ...] = ()
    generators: tuple[str, ...] = ()
    numbers: Mapping[str, int] = field(default_factory=dict[str, int])


@event("state loaded")
class StateLoaded(Event):
    """``what``: model, optimizer or scaler. With ``strict=False``: how many of the ``given`` keys ``matched``."""

    what: str = ""
    class_name: str = fact("class", "")
    wrapped: bool = False
    keys: tuple[str, ...] = ()
    matched: int | None = None
    given: int = 0


@event("load failed")
class LoadFailed(Event):
    """The script may have caught the exception."""

    error: str = "?"


@event("rng restored")
class RngRestored(Event):
    pass
