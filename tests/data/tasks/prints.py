"""Prints without end, and binary too, while it runs."""
import os
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x):
        for _ in range(50000):
            print('noise', chr(7) * 40)
        sys.stderr.write('last words\n')
        return x * 2


def get_inputs():
    return [torch.randn(4, 8)]


def get_init_inputs():
    return []
