"""What is far from the diagonal is small: rows of 1024 elements, the last of them 1e-12 of the largest."""
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1024))

    def forward(self, x):
        at = torch.arange(1024, device=x.device)
        return torch.tanh(x * self.scale) * 0.97 ** (at - at.view(-1, 1)[:64]).abs()


def get_inputs():
    return [torch.randn(64, 1024)]


def get_init_inputs():
    return []
