import functools
import logging

logger = logging.getLogger(__name__)


def best_effort(default=None):
    """Reporting must never take the training down."""

    def wrap(fn):
        @functools.wraps(fn)
        def inner(*args, **kwargs):
            try:
                return fn(*args, **kwargs)
            except Exception as err:
                logger.debug("%s failed: %r", fn.__name__, err)
                return default
        return inner
    return wrap
