import torch
import torch.distributed as dist
import torch.nn.functional as F


def gather_features(features):
    bucket = [torch.empty_like(features) for _ in range(dist.get_world_size())]
    dist.all_gather(bucket, features.detach())
    bucket[dist.get_rank()] = features
    return torch.cat(bucket)


def clip_loss(image, text, scale=10.0):
    image, text = F.normalize(image, dim=1), F.normalize(text, dim=1)
    all_image, all_text = gather_features(image), gather_features(text)
    start = dist.get_rank() * len(image)
    labels = torch.arange(start, start + len(image))
    return 0.5 * (F.cross_entropy(scale * image @ all_text.T, labels)
                  + F.cross_entropy(scale * text @ all_image.T, labels))
