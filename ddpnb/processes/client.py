"""The launcher's end of ipyparallel, which loads nothing that a rank has pickled until somebody asks for it.

ipyparallel unpickles the reply to each call when it arrives, and a pickle runs whatever code its author likes. Here the
bytes are kept as they came: a rank answers us in JSON, and what a user's function returned is unpickled
when the user reads it.
"""

from __future__ import annotations

import json
import pickle
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ipyparallel
from ipyparallel import serialize
from ipyparallel.client.client import unpack_message

_PUBLISHED = "data_message"  # pickled too, and nobody here wants it

_dispatch_iopub: Any = vars(ipyparallel.Client._dispatch_iopub)["__wrapped__"]  # it unpacks no second time


class Client(ipyparallel.Client):
    """A client whose own calls result in the buffers of the reply: a list of bytes.

    What a user asks for through a view of ipyparallel is loaded, as ipyparallel has it.
    """

    def __init__(self, *args: Any, **more: Any) -> None:
        self._calling = threading.local()
        self._users: set[str] = set()  # calls of the user's, by message
        super().__init__(*args, **more)

    @contextmanager
    def own_calls(self) -> Iterator[None]:
        """Calls that this thread makes inside are not the user's."""
        self._calling.own = True
        try:
            yield
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


class Answer:
    """What a rank answers to one call.

    Args:
        reply: the AsyncResult of a ``Client`` of this module.
    """

    def __init__(self, reply: Any) -> None:
        self._reply = reply

    def ready(self) -> bool:
        """Whether it is there."""
        return bool(self._reply.ready())

    def wait(self, timeout: float | None = None) -> None:
        """Wait for it so many seconds at most."""
        self._reply.wait(timeout)

    def successful(self) -> bool:
        """Whether the call, which is over, ended without an exception."""
        return bool(self._reply.successful())

    def exception(self) -> Any:
        """How the call failed, in words of the rank; None where it did not."""
        return self._reply.exception()

    def get(self, timeout: float | None = None) -> Any:
        """The JSON value of an ``Engines.call``.

        Raises:
            ValueError: it is none.
            Exception: of the call, or a time-out.
        """
        buffers = self._reply.get(timeout)
        return json.loads(b"".join(buffers))

    def load(self, timeout: float | None = None) -> Any:
        """What the function of an ``Engines.begin`` returned: unpickled here, which runs what the rank put into it."""
        return serialize.deserialize_object(self._reply.get(timeout))[0]
