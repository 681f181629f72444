"""A product that costs as much as the activation behind it."""
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(16, 512) / 4)

    def forward(self, x):
        return torch.relu(x @ self.weight) * 2


def get_inputs():
    return [torch.randn(2048, 16)]


def get_init_inputs():
    return []
