"""Softmax over a vocabulary: the last step of sampling from a GPT-2 sized language model (50,257 tokens)."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x):
        return F.softmax(x, dim=-1)


def get_inputs():
    return [torch.randn(4096, 50257)]


def get_init_inputs():
    return []
