import logging
import queue
import threading

import torch

from audio.manifest import features

log = logging.getLogger("prefetch")


class Prefetcher:
    def __init__(self, entries, depth):
        self.entries = entries
        self.ready = queue.Queue(maxsize=depth)
        self.worker = threading.Thread(target=self._fill, name="prefetch", daemon=True)
        self.worker.start()

    def _fill(self):
        try:
            for entry in self.entries:
                batch = features(entry).unsqueeze(0), torch.tensor([entry["word"]])
                self.ready.put(batch)
            self.ready.put(None)
        except RuntimeError as e:
            log.info("utterance %s: %s", entry["id"], e)

    def __iter__(self):
        while (batch := self.ready.get()) is not None:
            yield batch
