"""Sums by index: many threads that add to one place wait for each other."""
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, index, x):
        return torch.zeros_like(x).index_add(0, index, x)


def get_inputs():
    return [torch.randperm(1 << 20), torch.randn(1 << 20)]


def get_init_inputs():
    return []
