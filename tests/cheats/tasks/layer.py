"""Four outputs of the kinds that a loose judge lets through: a norm whose weight and bias are at their defaults, values
far below an absolute tolerance, nearly the identity, a mean that barely moves; and a matrix product to be computed less
exactly."""
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(96)
        self.fc = nn.Linear(96, 80)

    def forward(self, x):
        small = torch.softmax(x, -1) * 1e-3
        return self.norm(x), small, x + 1e-3 * torch.sin(x), x.mean(-1), torch.relu(self.fc(x))


def get_inputs():
    return [torch.rand(64, 96)]


def get_init_inputs():
    return []
