"""Short rows, every second of which is a million times smaller than its neighbours."""
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(32))

    def forward(self, x):
        return torch.tanh(x * self.scale) * torch.where(torch.arange(256, device=x.device) % 2 == 0, 1.0,
                                                        1e-6).view(-1, 1)


def get_inputs():
    return [torch.randn(256, 32)]


def get_init_inputs():
    return []
