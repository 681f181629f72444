"""A linear layer with an exact GELU: the first half of a transformer's feed-forward block."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.fc = nn.Linear(dim, hidden)

    def forward(self, x):
        return F.gelu(self.fc(x))


def get_inputs():
    return [torch.randn(8, 512, 4096)]


def get_init_inputs():
    return [4096, 8192]
