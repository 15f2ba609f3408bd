"""A client of ipyparallel that unpickles nothing from a rank until the user reads it.

ipyparallel unpickles the reply to each call when it arrives, and a pickle can run any code. Here the bytes are kept:
a rank answers our calls in JSON, and what a user's function returned is unpickled when the user reads it.
"""

from __future__ import annotations

import json
import pickle
import threading
from collections.abc import Callable
from typing import Any

import ipyparallel
from ipyparallel import serialize
from ipyparallel.client.client import unpack_message

from ddpnb.ranks.rank_processes import Answer

_PUBLISHED = "data_message"  # pickled too, and nobody here wants it

_dispatch_iopub: Any = vars(ipyparallel.Client._dispatch_iopub)["__wrapped__"]  # it unpacks no second time


class Client(ipyparallel.Client):
    """A client whose own calls result in the buffers of the reply: a list of bytes.

    Replies to the user's calls through a view of ipyparallel are unpickled by ipyparallel, as usual.
    """

    def __init__(self, *args: Any, **more: Any) -> None:
        self._calling = threading.local()
        self._users: set[str] = set()  # calls of the user's, by message
        super().__init__(*args, **more)

    def call(self, engine: int, function: Callable[..., Any], *args: Any) -> Reply:
        """Call an importable function on the main thread of an engine."""
        self._calling.own = True
        try:
            return Reply(self[engine].apply_async(*map(_pickled, (function, *args))))
        finally:
            self._calling.own = False

    def send_apply_request(self, *args: Any, message_future_hook: Any = None, **more: Any) -> Any:
        own = getattr(self._calling, "own", False)

        def hook(future: Any) -> None:  # before the request is sent
            if not own:
                self._users.add(future.msg_id)
            if message_future_hook is not None:
                message_future_hook(future)

        return super().send_apply_request(*args, message_future_hook=hook, **more)

    def _handle_apply_reply(self, msg: dict[str, Any]) -> None:
        call = msg["parent_header"].get("msg_id")
        if call in self._users:
            self._users.discard(call)
            super()._handle_apply_reply(msg)
            return
        kept = [bytes(buffer) for buffer in msg.get("buffers") or ()]
        super()._handle_apply_reply({**msg, "buffers": [pickle.dumps(kept)]})  # a pickle of ours, of bytes alone

    @unpack_message
    def _dispatch_iopub(self, msg: dict[str, Any]) -> None:
        if msg["header"]["msg_type"] != _PUBLISHED:
            _dispatch_iopub(self, msg)


def _pickled(value: Any) -> serialize.PrePickled:
    """A value to send. ipyparallel itself would look for arrays in it, and import numpy for that, before the first call."""
    pickled = serialize.PrePickled.__new__(serialize.PrePickled)
    pickled.buffers = [pickle.dumps(value)]
    return pickled


class Reply(Answer):
    """What an engine answers to one call.

    Args:
        result: the AsyncResult of a ``Client`` of this module.
    """

    def __init__(self, result: Any) -> None:
        self.result = result

    def ready(self) -> bool:
        return bool(self.result.ready())

    def wait(self, timeout: float | None = None) -> None:
        self.result.wait(timeout)

    def successful(self) -> bool:
        return bool(self.result.successful())

    def exception(self) -> Any:
        return self.result.exception()

    def get(self, timeout: float | None = None) -> Any:
        return json.loads(b"".join(self.result.get(timeout)))

    def load(self, timeout: float | None = None) -> Any:
        return serialize.deserialize_object(self.result.get(timeout))[0]


def is_closed(client: Any) -> bool:
    """Whether a client of ipyparallel has been closed."""
    return bool(client._closed)
