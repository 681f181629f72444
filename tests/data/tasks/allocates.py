"""Takes all the memory there is."""
import os
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
kept = []


class Model(nn.Module):
    def forward(self, x):
        while True:
            kept.append(torch.ones(1 << 24))
            time.sleep(0.001)


def get_inputs():
    return [torch.randn(4, 8)]


def get_init_inputs():
    return []
