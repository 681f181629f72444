"""Rows, and three times as many of zeros behind them."""
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return nn.functional.pad(x * 2, (0, 0, 0, 768))


def get_inputs():
    return [torch.randn(256, 1024)]


def get_init_inputs():
    return []
