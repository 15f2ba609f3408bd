import functools
import logging

log = logging.getLogger("tiles")


class ManifestError(OSError):
    pass


def retrying(times=3, on=(OSError,)):
    """Object storage is flaky: call again, up to `times` times."""

    def wrap(fn):
        @functools.wraps(fn)
        def call(*args, **kwargs):
            for attempt in range(1, times + 1):
                try:
                    return fn(*args, **kwargs)
                except on as err:
                    if attempt == times:
                        raise
                    log.debug("%s: attempt %d: %s", fn.__name__, attempt, err)

        return call

    return wrap
