"""Bias and GELU: what follows the product in a linear layer."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(features))

    def forward(self, x):
        return F.gelu(x + self.bias)


def get_inputs():
    return [torch.randn(2048, 3072)]


def get_init_inputs():
    return [3072]
