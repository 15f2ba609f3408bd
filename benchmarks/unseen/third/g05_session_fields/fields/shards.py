from dataclasses import dataclass

import torch

COUNTRIES = ["de", "fr", "jp", "us"]
DISTINCT = {  # what the data set report lists per country
    "de": {"device": 14, "referrer": 40, "campaign": 22},
    "fr": {"device": 12, "referrer": 37, "campaign": 25},
    "jp": {"device": 31, "referrer": 44, "campaign": 19},
    "us": {"device": 18, "referrer": 52, "campaign": 30},
}


@dataclass
class Shard:
    columns: dict
    label: torch.Tensor

    def rows(self, s):
        return Shard({k: v[s] for k, v in self.columns.items()}, self.label[s])

    def cardinality(self, name):
        return self.columns[name].unique().numel()


def load_shard(rank, world, n=320):
    country = COUNTRIES[-world:][rank]
    g = torch.Generator().manual_seed(COUNTRIES.index(country) + 60)
    columns = {}
    for name, distinct in DISTINCT[country].items():
        values = torch.randint(0, distinct, (n,), generator=g)
        values[:distinct] = torch.arange(distinct)
        columns[name] = values
    score = (columns["device"] % 3) - (columns["campaign"] % 4) + (columns["referrer"] % 2)
    return Shard(columns, (score > 0).float())
