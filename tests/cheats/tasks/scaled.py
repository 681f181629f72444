"""A product, scaled by a few numbers that many small operators make."""
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(256, 256) / 16)
        self.scale = nn.Parameter(torch.randn(256))

    def forward(self, x):
        s = self.scale.sin().exp().sigmoid().cos().tanh().erf().sqrt().log1p().atan().expm1().asinh().square()
        return torch.relu(x @ self.weight) * s


def get_inputs():
    return [torch.randn(256, 256)]


def get_init_inputs():
    return []
