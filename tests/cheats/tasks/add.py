"""One parameter, one input, one output; nothing can be left out of it."""
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(1000))

    def forward(self, x):
        return torch.relu(x + self.bias) * 2


def get_inputs():
    return [torch.randn(67, 1000)]


def get_init_inputs():
    return []
