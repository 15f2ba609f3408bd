import argparse


def parse_args():
    p = argparse.ArgumentParser("plates")
    p.add_argument("--local-rank", "--local_rank", type=int, default=0)
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--batch-size", type=int, default=16)
    p.add_argument("--lr", type=float, default=0.05)
    p.add_argument("--print-freq", type=int, default=5)
    return p.parse_args()
