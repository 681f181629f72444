import torch
class Model(torch.nn.Module):
    def forward(self, x): return x.mean(1)
CASES = [([], lambda: [torch.randn(3, 1000, 260)]), ([], lambda: [torch.randn(2, 77, 33)]),
         ([], lambda: [torch.randn(40, 5, 64)])]
