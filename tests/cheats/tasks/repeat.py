"""Each row many times, in memory of its own: nearly all of the work is to write it."""
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(256))

    def forward(self, x):
        return torch.tanh(x * self.weight).unsqueeze(1).repeat(1, 32, 1)


def get_inputs():
    return [torch.randn(64, 256)]


def get_init_inputs():
    return []
