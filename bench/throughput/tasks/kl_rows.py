"""Kullback-Leibler divergence between the softmaxes of two rows."""

import torch
import torch.nn as nn
import torch.nn.functional as F

ROWS, COLS = 65536, 4096


class Model(nn.Module):
    def __init__(self, cols):
        super().__init__()

    def forward(self, x, y):
        p, q = F.log_softmax(x, -1), F.log_softmax(y, -1)
        return (torch.exp(p) * (p - q)).sum(-1)


def get_inputs():
    return [torch.randn(ROWS, COLS), torch.randn(ROWS, COLS)]


def get_init_inputs():
    return [COLS]
