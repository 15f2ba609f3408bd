import os
from dataclasses import dataclass


@dataclass
class RunConfig:
    rows: int = 1920
    batch: int = 32
    epochs: int = 3
    lr: float = 0.02
    seed: int = 7
    parts: int = 1
    part: int = 0

    @classmethod
    def from_env(cls):
        env = os.environ
        return cls(
            parts=int(env.get("SLURM_NTASKS", cls.parts)),
            part=int(env.get("SLURM_PROCID", cls.part)),
        )
