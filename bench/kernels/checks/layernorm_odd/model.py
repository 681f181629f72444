import torch
class Model(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.norm = torch.nn.LayerNorm(n)
    def forward(self, x): return self.norm(x)
CASES = [([1001], lambda: [torch.randn(9, 1001)]), ([50257], lambda: [torch.randn(5, 50257)]),
         ([31], lambda: [torch.randn(70, 31)])]
