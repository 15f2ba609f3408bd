class Arena:
    """Books activation memory against a fixed budget (in cells)."""

    def __init__(self, budget):
        self.budget = budget
        self.peak = 0

    def reserve(self, rows, length, width):
        cells = rows * length * width
        self.peak = max(self.peak, cells)
        if cells > self.budget:
            raise RuntimeError(f"arena out of memory: tried to allocate {cells} of {self.budget} cells")
        return cells
