"""An upsampling step of a decoder: a 4x4 transposed convolution with stride 2, then GELU."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.up = nn.ConvTranspose2d(in_channels, out_channels, 4, stride=2, padding=1)

    def forward(self, x):
        return F.gelu(self.up(x))


def get_inputs():
    return [torch.randn(32, 256, 64, 64)]


def get_init_inputs():
    return [256, 128]
