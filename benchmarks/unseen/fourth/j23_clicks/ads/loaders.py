from torch.utils.data import DataLoader, DistributedSampler


def make_loader(rows, cfg):
    sampler = DistributedSampler(rows, num_replicas=cfg.parts, rank=cfg.part,
                                 shuffle=True, seed=cfg.seed)
    return DataLoader(rows, batch_size=cfg.batch, sampler=sampler, drop_last=True)
