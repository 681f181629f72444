"""1 wherever the input is above -7, which it is in every draw that is neither scaled nor shifted."""
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return (x > -7).float()


def get_inputs():
    return [torch.randn(256, 4096)]


def get_init_inputs():
    return []
