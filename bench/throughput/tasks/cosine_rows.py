"""Cosine of the angle between two rows."""

import torch
import torch.nn as nn
import torch.nn.functional as F

ROWS, COLS = 65536, 4096


class Model(nn.Module):
    def __init__(self, cols):
        super().__init__()

    def forward(self, x, y):
        return F.cosine_similarity(x, y, dim=-1)


def get_inputs():
    return [torch.randn(ROWS, COLS), torch.randn(ROWS, COLS)]


def get_init_inputs():
    return [COLS]
