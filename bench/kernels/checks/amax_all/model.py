import torch
class Model(torch.nn.Module):
    def forward(self, x): return x.abs().amax()
CASES = [([], lambda: [torch.randn(1000, 1001)]), ([], lambda: [torch.randn(3)])]
