from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    seed: int = 19
    n_windows: int = 200
    history: int = 24
    horizon: int = 6
    batch: int = 8
    accumulate: int = 4
    epochs: int = 3
    lr: float = 2e-3
