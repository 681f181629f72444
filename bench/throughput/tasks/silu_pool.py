"""Largest of each sixteen neighbours after a scale, a shift and a SiLU."""

import torch
import torch.nn as nn
import torch.nn.functional as F

ROWS, COLS = 65536, 4096


class Model(nn.Module):
    def __init__(self, cols):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(cols))
        self.bias = nn.Parameter(torch.zeros(cols))

    def forward(self, x):
        return F.silu(x * self.weight + self.bias).view(x.shape[0], -1, 16).amax(-1)


def get_inputs():
    return [torch.randn(ROWS, COLS)]


def get_init_inputs():
    return [COLS]
