import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """The gate of a SwiGLU feed-forward layer: half of the features, through SiLU, multiplies the other half."""

    def __init__(self):
        super().__init__()

    def forward(self, x):
        gate, up = x.chunk(2, dim=-1)
        return F.silu(gate) * up


batch, tokens, features = 4, 1024, 8192


def get_inputs():
    return [torch.randn(batch, tokens, features)]


def get_init_inputs():
    return []
