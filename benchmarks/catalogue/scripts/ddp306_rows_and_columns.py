# expect: DDP306
# ranks: 4
# culprits: any
# outcome: hang
# plain: H
"""A two-dimensional grid of processes: sums over rows and over columns."""

import torch
import torch.distributed as dist


class Grid:
    def __init__(self, rows, columns):
        rank = dist.get_rank()
        self.row, self.column = divmod(rank, columns)
        for r in range(rows):
            group = dist.new_group([r * columns + c for c in range(columns)])
            if r == self.row:
                self.row_group = group
        for c in range(columns):
            group = dist.new_group([r * columns + c for r in range(rows)])
            if c == self.column:
                self.column_group = group

    def sum_rows(self, x):
        dist.all_reduce(x, group=self.row_group)
        return x

    def sum_columns(self, x):
        dist.all_reduce(x, group=self.column_group)
        return x

    def normalise(self, x):
        # start with the direction in which this block is "dark" on the chess board
        if (self.row + self.column) % 2 == 0:
            by_row = self.sum_rows(x.sum(1))
            by_column = self.sum_columns(x.sum(0))
        else:
            by_column = self.sum_columns(x.sum(0))
            by_row = self.sum_rows(x.sum(1))
        return x / (by_row[:, None] * by_column).sqrt()


dist.init_process_group("gloo")
side = int(dist.get_world_size() ** 0.5)
grid = Grid(side, dist.get_world_size() // side)
block = torch.rand(3, 3)
for _ in range(4):
    block = grid.normalise(block)
print(dist.get_rank(), block.sum().item())
dist.destroy_process_group()
