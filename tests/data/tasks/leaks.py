"""Keeps every input it ever saw."""
import os
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
kept = []


class Model(nn.Module):
    def forward(self, x):
        kept.append(torch.ones(1 << 18))
        return x * 2


def get_inputs():
    return [torch.randn(4, 8)]


def get_init_inputs():
    return []
