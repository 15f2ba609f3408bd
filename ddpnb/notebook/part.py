"""A part of the dashboard: what it shows, when it is updated, and which actions it takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

from ddpnb.notebook.actions import Actions
from ddpnb.notebook.armed_hold import ArmedHold, with_ranks
from ddpnb.notebook.live import Picture
from ddpnb.notebook.tasks import Tasks
from ddpnb.notebook.widgets.fragment import Fragment
from ddpnb.notebook.widgets.view import View
from ddpnb.recording.findings import Diagnosis
from ddpnb.recording.recording import Recording
from ddpnb.render.controls import Head
from ddpnb.render.views.present import Present
from ddpnb.world.live import LiveRanks
from ddpnb.world.run import Run

Widget = TypeVar("Widget", bound=View)


@dataclass
class Context:
    """What the parts of a dashboard share.

    Args:
        world: the ranks that are shown.
        tasks: runs work in the background.
        actions: the actions on the ranks.
        act: takes an action of the page with its values, whichever part is responsible for it; its answer is shown at
            the place that is named last.
        show_run: shows an earlier run as it was; None: the ranks as they are now.
        ask: reads stacks and variables of the ranks in the background, for ``Part.show_recording``.
    """

    world: LiveRanks
    tasks: Tasks
    actions: Actions
    act: Callable[[str, Mapping[str, str], str], None]
    ask: Callable[[], None]
    show_run: Callable[[Run | None], None]
    picture: Picture | None = None  # the last one
    present: Present | None = None  # the state now, from it
    shown: Run | None = None  # an earlier run that is shown instead

    def holds(self) -> list[tuple[ArmedHold, tuple[int, ...]]]:
        """The holds that are armed or switched off, each with the ranks that it holds now."""
        return with_ranks(self.actions.listed, self.picture.recording if self.picture is not None else None)

    def snapshot(self) -> tuple[Recording, Diagnosis | None]:
        """The last run, if its outcome is known, or the ranks as they are now; asks the ranks."""
        run = self.shown or self.world.last_run
        diagnosis = run._monitor.diagnosis if run is not None else None
        if run is not None and run.done and run.recording is not None:
            return run.recording, diagnosis
        return self.world.snapshot(), diagnosis


class Part(Generic[Widget]):
    """A part of the dashboard, below the time line, of live ranks, and perhaps of a recording. A row of ``parts.PARTS`` adds it.

    A subclass creates ``widget`` and implements what it reacts to; ``name`` is its key in ``Dashboard.parts``.
    Nothing here may wait for ranks: what does is started with ``context.tasks``.
    """

    name: ClassVar[str]
    for_worlds: ClassVar[bool] = False  # a job that was started elsewhere does not have it
    widget: Widget

    def __init__(self, context: Context) -> None:
        self.context = context

    @classmethod
    def still(cls, recording: Recording, diagnosis: Diagnosis) -> View | None:
        """The same part of a recording, without live ranks; None if there is nothing of it."""
        del recording, diagnosis

    def fragment(self, title: str, label: str, *, live: bool = False) -> Fragment:
        """A widget with this heading, closed at first, whose actions are the dashboard's."""
        return Fragment(title=title, label=label, folds=True, on_action=self.take, on_unfolded=self.unfolded, live=live)

    def take(self, action: str, values: Mapping[str, str]) -> None:
        """An action of the widget: a handler for the page."""
        self.context.act(action, values, self.place_of(action))

    def place_of(self, action: str) -> str:
        """Where the answer to an action is shown, for ``tasks.answer``; a part with several forms has several places."""
        del action
        return self.name

    def unfolded(self) -> None:
        """It was opened."""

    def refresh(self, head: Head) -> None:
        """The state of the controls may have changed; called often, on any thread, within ``tasks.drawing``."""

    def run_began(self) -> None:
        """Another run has begun."""

    def show_picture(self, picture: Picture) -> None:
        """The ranks have changed; called on the polling thread."""

    def show_recording(self, recording: Recording, diagnosis: Diagnosis | None) -> None:
        """Show this state of the ranks, with stacks and variables: the outcome of a run, or what was asked for."""

    def outcome_known(self, diagnosis: Diagnosis | None) -> None:
        """The outcome of the last run is known (its recording has been shown), or another run has none yet (None)."""

    def act(self, action: str, values: Mapping[str, str]) -> bool:
        """Take an action of the page; False if it is not one of this part."""
        del action, values
        return False
