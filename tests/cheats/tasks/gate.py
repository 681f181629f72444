"""An activation in two operators, long enough for its work to be seen beside the calls around it."""
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(x)


def get_inputs():
    return [torch.randn(512, 1024)]


def get_init_inputs():
    return []
