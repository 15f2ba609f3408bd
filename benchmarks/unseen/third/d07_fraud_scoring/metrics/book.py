class MetricBook:
    """A set of metrics that are updated and read together."""

    def __init__(self, *metrics):
        self.metrics = metrics

    def __enter__(self):
        for metric in self.metrics:
            metric.reset()
        return self

    def __exit__(self, *exc):
        return False

    def update(self, **batch):
        for metric in self.metrics:
            metric.update(**batch)

    def values(self):
        return {metric.name: metric.compute() for metric in self.metrics}
