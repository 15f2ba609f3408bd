import json
import tempfile
from pathlib import Path

import torch
from accelerate.utils import broadcast_object_list
from torch.utils.data import DataLoader, TensorDataset


def workdir(accelerator):
    box = [tempfile.mkdtemp(prefix="ner-") if accelerator.is_main_process else None]
    broadcast_object_list(box)
    return Path(box[0])


def corpus(accelerator, folder, n=210):
    """The first process tokenises, the others read its file."""
    cache = folder / "tokens.json"
    with accelerator.main_process_first():
        if not cache.exists():
            gen = torch.Generator().manual_seed(10)
            ids = torch.randint(0, 40, (n, 9), generator=gen)
            cache.write_text(json.dumps(ids.tolist()))
        ids = torch.tensor(json.loads(cache.read_text()))
    return TensorDataset(ids, (ids % 7 == 0).long())


def loaders(accelerator, folder):
    ds = corpus(accelerator, folder)
    train, val = torch.utils.data.random_split(ds, [163, 47], torch.Generator().manual_seed(2))
    return DataLoader(train, 8, shuffle=True), DataLoader(val, 6)
