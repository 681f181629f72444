import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv3d(4, 6, (3, 2, 5), stride=(2, 1, 1), padding=(1, 0, 2))
    def forward(self, x): return self.conv(x)
CASES = [([], lambda: [torch.randn(2, 4, 9, 11, 13)])]
