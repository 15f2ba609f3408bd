import torch
import torch.distributed as dist

from curriculum import CurriculumTrainer
from model import SeriesLM


def make_data(rank):
    def data(stage, epoch, n=6):
        gen = torch.Generator().manual_seed(hash((len(stage), epoch, rank)) % 2**31)
        for _ in range(n):
            patches = torch.randn(8, 6, 4, generator=gen)
            tokens = (patches.sum(-1).clamp(-3, 3) * 5 + 16).long()
            yield {"patches": patches, "tokens": tokens}

    return data


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.manual_seed(2024)
    CurriculumTrainer(SeriesLM(), make_data(dist.get_rank())).run()
    dist.destroy_process_group()
