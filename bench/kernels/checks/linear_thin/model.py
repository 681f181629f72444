import torch
class Model(torch.nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.fc = torch.nn.Linear(k, n)
    def forward(self, x): return self.fc(x)
CASES = [([1077, 11], lambda: [torch.randn(605, 1077)]), ([4096, 4], lambda: [torch.randn(130, 4096)])]
