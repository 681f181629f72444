"""A cache of which a call changes a part; a copy of all of it is the result."""
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("cache", torch.randn(64, 65536))

    def forward(self, x):
        self.cache[:, :16] += x
        return self.cache.clone()


def get_inputs():
    return [torch.randn(64, 16)]


def get_init_inputs():
    return []
