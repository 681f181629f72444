import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(12, 18, (3, 5), stride=(2, 1), padding=(1, 4), dilation=(1, 2), groups=3)
    def forward(self, x): return self.conv(x)
CASES = [([], lambda: [torch.randn(2, 12, 19, 23)])]
