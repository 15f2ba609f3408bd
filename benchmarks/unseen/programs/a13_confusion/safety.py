import functools
import logging

log = logging.getLogger("callbacks")


def best_effort(default=None):
    """Metrics and logging must never take a training run down."""

    def wrap(fn):
        @functools.wraps(fn)
        def inner(*args, **kwargs):
            try:
                return fn(*args, **kwargs)
            except Exception as exc:
                log.debug("%s failed: %r", fn.__name__, exc)
                return default() if callable(default) else default

        return inner

    return wrap
