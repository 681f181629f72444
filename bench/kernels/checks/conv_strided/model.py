import torch
class Model(torch.nn.Module):
    def __init__(self, c, k, r, s, stride, pad, dil):
        super().__init__()
        self.conv = torch.nn.Conv2d(c, k, (r, s), stride=stride, padding=pad, dilation=dil)
    def forward(self, x): return self.conv(x)
CASES = [([3, 64, 7, 7, 2, 3, 1], lambda: [torch.randn(2, 3, 64, 64)]),
         ([70, 200, 3, 3, 2, 2, 2], lambda: [torch.randn(3, 70, 30, 41)])]
