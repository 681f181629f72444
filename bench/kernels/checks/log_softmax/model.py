import torch
class Model(torch.nn.Module):
    def forward(self, x): return torch.log_softmax(x, -1)
CASES = [([], lambda: [torch.randn(19, 4000)]), ([], lambda: [torch.randn(500, 100)])]
