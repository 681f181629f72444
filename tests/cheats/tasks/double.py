"""A product in float64."""
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(48, 80, dtype=torch.float64))

    def forward(self, x):
        return x @ self.w


def get_inputs():
    return [torch.randn(64, 48, dtype=torch.float64)]


def get_init_inputs():
    return []
