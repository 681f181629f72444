import torch
class Model(torch.nn.Module):
    def forward(self, g, u): return torch.nn.functional.silu(g) * u + torch.tanh(u)
CASES = [([], lambda: [torch.randn(1001, 33), torch.randn(1001, 33)]), ([], lambda: [torch.randn(2), torch.randn(2)]),
         ([], lambda: [torch.randn(64, 64), torch.randn(64, 64)])]
