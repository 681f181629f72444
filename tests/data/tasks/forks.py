"""Leaves children behind that would answer in its place, if they could."""
import os
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x):
        for _ in range(3):
            if os.fork() == 0:
                if _ == 1:
                    time.sleep(600)
                return x * 3
        return x * 2


def get_inputs():
    return [torch.randn(4, 8)]


def get_init_inputs():
    return []
