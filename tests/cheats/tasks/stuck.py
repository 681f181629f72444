"""Random weights in a list: they are no state that could be given to a solution, so nobody can draw them anew."""
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weights = [torch.randn(96, 64) / 10, torch.randn(64, 80) / 8]

    def forward(self, x):
        return x @ self.weights[0].to(x.device) @ self.weights[1].to(x.device)


def get_inputs():
    return [torch.randn(64, 96)]


def get_init_inputs():
    return []
