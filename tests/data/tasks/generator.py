"""Random by a generator of its own."""
import os
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
g = torch.Generator()
g.manual_seed(1)


class Model(nn.Module):
    def forward(self, x):
        return x + torch.randn(x.shape, generator=g)


def get_inputs():
    return [torch.randn(4, 8)]


def get_init_inputs():
    return []
