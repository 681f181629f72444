import torch
class Model(torch.nn.Module):
    def forward(self, x): return torch.cumsum(x, 1)
CASES = [([], lambda: [torch.rand(3, 1000, 33)]), ([], lambda: [torch.rand(2, 5, 256)])]
