import functools


def retrying(times, on_error):
    """Calls a method again after `on_error(self)` has cleaned up."""
    def wrap(fn):
        @functools.wraps(fn)
        def inner(self, *args, **kwargs):
            for attempt in range(times):
                try:
                    return fn(self, *args, **kwargs)
                except BufferError:
                    if attempt + 1 == times:
                        raise
                    on_error(self)
        return inner
    return wrap
