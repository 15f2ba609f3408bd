import torch.distributed as dist


class Topology:
    """Offices of up to two ranks; the first rank of each office is its speaker."""

    def __init__(self, per_office=2):
        world, rank = dist.get_world_size(), dist.get_rank()
        offices = [list(range(i, min(i + per_office, world))) for i in range(0, world, per_office)]
        self.speakers = [members[0] for members in offices]
        self.office = None
        for members in offices:
            group = dist.new_group(members)
            if rank in members:
                self.office, self.members = group, members
        self.council = dist.new_group(self.speakers)
        self.rank = rank

    @property
    def speaks(self):
        return self.rank in self.speakers
