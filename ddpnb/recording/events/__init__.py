"""What a rank records besides collectives: one dataclass for each kind of event.

To add a kind, declare its class in one of these modules, emit it in a hook of ``recorder/``, and read it with
``record.events(...)``.
"""

from ddpnb.recording.events import data, models, runs, startup
from ddpnb.recording.events.base import Event, EventState, Unknown, read, written

__all__ = ["Event", "EventState", "Unknown", "data", "models", "read", "runs", "startup", "written"]
