"""A residual connection and the layer norm behind it: a little more than 100 us on an H200."""
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)

    def forward(self, x, residual):
        return self.norm(x + residual)


def get_inputs():
    return [torch.randn(12, 2048, 2048), torch.randn(12, 2048, 2048)]


def get_init_inputs():
    return [2048]
