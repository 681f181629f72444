import torch
import torch.nn as nn


class Model(nn.Module):
    """A 3x3 convolution with bias and ReLU."""

    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size=3, padding=1)

    def forward(self, x):
        return torch.relu(self.conv(x))


batch, in_channels, out_channels, height, width = 8, 64, 128, 56, 56


def get_inputs():
    return [torch.randn(batch, in_channels, height, width)]


def get_init_inputs():
    return [in_channels, out_channels]
