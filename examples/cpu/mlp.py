import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """A transformer's feed-forward block: widen, GELU, narrow, add the residual."""

    def __init__(self, features, hidden):
        super().__init__()
        self.up = nn.Linear(features, hidden)
        self.down = nn.Linear(hidden, features)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(x)))


batch, features, hidden = 1024, 768, 3072


def get_inputs():
    return [torch.randn(batch, features)]


def get_init_inputs():
    return [features, hidden]
