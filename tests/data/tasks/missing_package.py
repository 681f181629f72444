"""Needs a package that nobody has."""
import os
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
import a_package_that_does_not_exist


class Model(nn.Module):
    def forward(self, x):
        return x


def get_inputs():
    return [torch.randn(4, 8)]


def get_init_inputs():
    return []
