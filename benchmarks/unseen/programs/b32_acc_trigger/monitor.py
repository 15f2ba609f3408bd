class SpikeMonitor:
    """Watches the local loss; any process may ask for the end of the run."""

    def __init__(self, accelerator, limit):
        self.accelerator = accelerator
        self.limit = limit
        self.local_hits = 0

    def observe(self, value):
        if value > self.limit:
            self.local_hits += 1
            print(f"process {self.accelerator.process_index}: loss {value:.2f}")
            self.accelerator.set_trigger()

    @property
    def triggered(self):
        return self.accelerator.check_trigger()
