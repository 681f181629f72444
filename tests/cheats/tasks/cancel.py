"""A task whose operations cancel: the softmax of one element is 1 whatever the input was."""
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(96, 80)

    def forward(self, x):
        return torch.softmax(self.fc(x).sum(-1, keepdim=True), -1)


def get_inputs():
    return [torch.randn(64, 96)]


def get_init_inputs():
    return []
