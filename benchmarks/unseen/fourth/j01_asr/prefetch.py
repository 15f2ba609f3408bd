"""Reads ahead in a thread so that collation overlaps with the forward pass."""
import logging
import queue
import threading

log = logging.getLogger(__name__)
_END = object()


class Prefetcher:
    def __init__(self, source, depth=3):
        self.source = source
        self.queue = queue.Queue(maxsize=depth)
        self.thread = threading.Thread(target=self._fill, daemon=True)
        self.thread.start()

    def _fill(self):
        try:
            for item in self.source:
                self.queue.put(item)
        except Exception as err:
            log.debug("reader finished: %r", err)
        finally:
            self.queue.put(_END)

    def __iter__(self):
        while True:
            item = self.queue.get()
            if item is _END:
                break
            yield item
        self.thread.join()
