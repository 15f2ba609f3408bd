import queue
import threading

import torch


def decode(record):
    """Turns 'label|v v v v' into tensors."""
    label, _, values = record.partition("|")
    return torch.tensor([float(v) for v in values.split()]), int(label)


class Prefetcher:
    """Decodes and batches records in the background."""

    _END = object()

    def __init__(self, records, batch_size, depth=4):
        self.records = records
        self.batch_size = batch_size
        self.queue = queue.Queue(maxsize=depth)

    def _fill(self):
        xs, ys = [], []
        for record in self.records:
            x, y = decode(record)
            xs.append(x)
            ys.append(y)
            if len(xs) == self.batch_size:
                self.queue.put((torch.stack(xs), torch.tensor(ys)))
                xs, ys = [], []
        self.queue.put(self._END)

    def __iter__(self):
        worker = threading.Thread(target=self._fill, name="prefetch", daemon=True)
        worker.start()
        while (item := self.queue.get()) is not self._END:
            yield item
        worker.join()
