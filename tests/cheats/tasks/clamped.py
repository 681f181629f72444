"""A product whose largest elements alone are changed behind it: one in seven."""
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(256, 256) / 16)

    def forward(self, x):
        return torch.clamp(x @ self.weight, -1.5, 1.5)


def get_inputs():
    return [torch.randn(256, 256)]


def get_init_inputs():
    return []
