import torch
class Model(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.norm = torch.nn.LayerNorm(n)
    def forward(self, x): return self.norm(x)
CASES = [([100000], lambda: [torch.randn(5, 100000)]), ([777], lambda: [torch.randn(5, 777)])]
