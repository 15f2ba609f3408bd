import torch.distributed as dist

from core.trainer import Trainer

CONFIG = {"seed": 6, "lr": 0.05, "curriculum": [4, 8, 16, 32, 32], "last_epoch": 3}


def main():
    dist.init_process_group("gloo")
    try:
        Trainer(CONFIG).fit()
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
