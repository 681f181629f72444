"""A sum, a copy of it and a copy of the input, each in memory of its own."""
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(1024))

    def forward(self, x):
        y = x + self.weight
        return y, y.clone(), x.clone()


def get_inputs():
    return [torch.randn(1024, 1024)]


def get_init_inputs():
    return []
