import torch

SENSORS = ("flow", "heat", "load")


class Plant:
    """Windows of sensor values of one site; some are torn by power cuts."""

    def __init__(self, site, hours=16, width=12):
        self.site, self.hours, self.width = site, hours, width
        self.torn = {(site * 5 + 3) % hours, (site * 7 + 9) % hours}

    def window(self, sensor, hour, batch=8):
        g = torch.Generator().manual_seed(self.site * 1000 + SENSORS.index(sensor) * 100 + hour)
        phase = torch.rand(batch, 1, generator=g) * 6.28
        t = torch.arange(self.width + 1).float()
        values = torch.sin(0.5 * t + phase) * (1 + SENSORS.index(sensor))
        values = values + 0.05 * torch.randn(values.shape, generator=g)
        if hour in self.torn:
            raise EOFError(f"site {self.site}, hour {hour}")
        return values

    def hours_of(self, day):
        return [(h + day) % self.hours for h in range(self.hours)]
