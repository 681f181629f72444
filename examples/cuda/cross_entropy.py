"""The loss of a language model with GPT-2's vocabulary: cross-entropy of (tokens, 50,257) logits, mean over tokens."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, logits, target):
        return F.cross_entropy(logits, target)


def get_inputs():
    return [torch.randn(8192, 50257), torch.randint(0, 50257, (8192,))]


def get_init_inputs():
    return []
