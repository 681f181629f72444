"""Two outputs, a parameter, a scalar argument: what an export must carry."""
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, x, shift):
        y = torch.relu(x * self.weight)
        return y, y + shift


def get_inputs():
    return [torch.randn(64, 1000), 0.25]


def get_init_inputs():
    return [1000]
