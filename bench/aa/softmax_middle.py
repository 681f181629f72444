"""Softmax of attention scores: some tens of us on an H200."""
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=-1)


def get_inputs():
    return [torch.randn(6144, 4096)]


def get_init_inputs():
    return []
