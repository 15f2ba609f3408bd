from dataclasses import dataclass


@dataclass(frozen=True)
class Config:
    epochs: int = 3
    steps: int = 12
    lr: float = 0.02
    leader: int = 1
    calib_batches: int = 3
    ddp: tuple = (("broadcast_buffers", False), ("bucket_cap_mb", 5))
