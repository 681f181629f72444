"""Inputs that no machine has room for."""
import os
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x):
        return F.relu(x) * 2


def get_inputs():
    return [torch.empty(10**13)]


def get_init_inputs():
    return []
