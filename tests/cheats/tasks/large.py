"""16 MiB in, 16 MiB out, and little between: whoever moves them once less is seen by the clock."""
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x + 1.0


def get_inputs():
    return [torch.randn(2048, 2048)]


def get_init_inputs():
    return []
