import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """A transposed convolution that doubles the resolution, then GELU: one step of a decoder."""

    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.conv = nn.ConvTranspose2d(in_channels, out_channels, kernel_size=4, stride=2, padding=1)

    def forward(self, x):
        return F.gelu(self.conv(x))


batch, in_channels, out_channels, height, width = 8, 64, 32, 56, 56


def get_inputs():
    return [torch.randn(batch, in_channels, height, width)]


def get_init_inputs():
    return [in_channels, out_channels]
