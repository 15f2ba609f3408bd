import torch


class Truncated(IOError):
    pass


class CallArchive:
    """Recorded calls of one centre. Fresh files may be read before they are complete."""

    def __init__(self, centre, calls):
        self.centre = centre
        self.calls = calls
        self._touched = set()

    def read(self, index):
        if (index + self.centre) % 5 == 0 and index not in self._touched:
            self._touched.add(index)
            raise Truncated(f"centre {self.centre}, call {index}")
        g = torch.Generator().manual_seed(self.centre * 333 + index)
        features = torch.randn(6, 10, generator=g)
        return features, features[:, :3].sum(1, keepdim=True) * 0.5

    def __iter__(self):
        for index in range(self.calls):
            yield self._patiently(index)

    def _patiently(self, index, attempts=3):
        for attempt in range(attempts):
            try:
                return self.read(index)
            except Truncated:
                if attempt + 1 == attempts:
                    raise
