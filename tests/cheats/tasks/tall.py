"""As collapse, of so many rows that avoiding the product is seen on any processor."""
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(512, 512)

    def forward(self, x):
        return self.fc(x).mean(dim=-1)


def get_inputs():
    return [torch.randn(2048, 512)]


def get_init_inputs():
    return []
