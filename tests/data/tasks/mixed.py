"""A bit of everything: batch norm in training mode, an embedding, a mask that is no buffer, two outputs, an integer
one."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc = nn.Linear(width, width)
        self.bn = nn.BatchNorm1d(width)
        self.norm = nn.LayerNorm(width)
        self.scale = nn.Parameter(torch.ones(width))
        self.table = nn.Embedding(100, width)
        self.mask = torch.tril(torch.ones(width, width))

    def forward(self, x, index, factor):
        y = F.gelu(self.norm(self.bn(self.fc(x)))) * self.scale + self.table(index)
        return (y @ self.mask) * factor, y.argmax(dim=1)


def get_inputs():
    return [torch.randn(24, 16), torch.randint(0, 100, (24,)), 0.5]


def get_init_inputs():
    return [16]
