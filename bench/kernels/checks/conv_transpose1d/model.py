import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.ConvTranspose1d(6, 8, 5, stride=3, padding=1, output_padding=1, groups=2)
    def forward(self, x): return self.conv(x)
CASES = [([], lambda: [torch.randn(2, 6, 29)])]
