"""Smooth L1 loss of two rows plus their largest difference."""

import torch
import torch.nn as nn
import torch.nn.functional as F

ROWS, COLS = 65536, 4096


class Model(nn.Module):
    def __init__(self, cols):
        super().__init__()

    def forward(self, x, y):
        return F.smooth_l1_loss(x, y, reduction='none').mean(-1) + (x - y).abs().amax(-1)


def get_inputs():
    return [torch.randn(ROWS, COLS), torch.randn(ROWS, COLS)]


def get_init_inputs():
    return [COLS]
