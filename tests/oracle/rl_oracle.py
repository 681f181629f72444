"""What PyTorch computes for advantages and losses of policy training, over whole contexts with masks.

usage: rl_oracle.py DIR        DIR/model.safetensors: episodes with turn borders, cut ends and empty turns as rows of
           ids and own (episodes, T), their lengths, and logp, old, sampled, value (episodes, T), 0 where not own;
           reward, group (episodes); then per case numbers in `opts` and what autograd gives
The own tokens are never gathered here: every formula walks the whole context and skips what is not own.
"""
import itertools
import os
import sys

import torch
from safetensors.torch import save_file

torch.set_num_threads(1)
torch.manual_seed(7)
EPISODES, T = 9, 60
own = torch.zeros(EPISODES, T, dtype=torch.bool)
lengths = torch.tensor([60, 41, 33, 60, 12, 5, 27, 60, 50])
turns = [[(8, 20), (25, 40), (40, 44), (50, 60)],   # two turns without anything between them; cut in a turn
         [(3, 4), (9, 30)], [(5, 9), (12, 30)],     # end in the output of a tool
         [(1, 60)], [(11, 12)], [], [(4, 6)], [(30, 31), (32, 33), (59, 60)], [(10, 49)]]
for e, spans in enumerate(turns):
    for a, b in spans:
        own[e, a:b] = True
mask = own.double()


def draw(scale, shift=0.0):
    return ((torch.randn(EPISODES, T, dtype=torch.float64) * scale + shift) * mask).float().double()


old = draw(0.6, -1.2)
logp, sampled, value = ((old + draw(0.3)) * mask).float().double(), ((old + draw(0.4)) * mask).float().double(), draw(1)
reference = ((old + draw(0.5)) * mask).float().double()
reward = torch.tensor([3, -1, 2, 1, -1, 2, 3, 1, 1], dtype=torch.float64)
group = torch.tensor([0, 0, 0, 0, 1, 1, 1, 2, 3])
out = dict(ids=torch.randint(0, 300, (EPISODES, T)).int(), own=own.int(), lengths=lengths.int(), group=group.int())
draws = dict(logp=logp, old=old, sampled=sampled, reference=reference, value=value, reward=reward)
out.update({k: v.float() for k, v in draws.items()})


def gae(gamma, lam, alpha):
    advantage = torch.zeros(EPISODES, T, dtype=torch.float64)
    for e in range(EPISODES):
        l, following, v_next, last = int(own[e].sum()), 0.0, 0.0, True
        here = max(0.0, 1 - 1 / (alpha * l)) if alpha and l else lam
        for t in reversed(range(T)):
            if own[e, t]:
                following = (reward[e] if last else 0) + gamma * v_next - value[e, t] + gamma * here * following
                advantage[e, t], v_next, last = following, value[e, t], False
    return advantage


def grouped(kind):
    each = torch.zeros(EPISODES, dtype=torch.float64)
    for g in group.unique():
        r = reward[group == g]
        if len(r) > 1:
            rest = (r.sum() - r) / (len(r) - 1)
            each[group == g] = r - rest if kind else (r - r.mean()) / (r.std() + 1e-6)
    return each[:, None] * mask


def mean(x, by_token):
    if by_token:
        return (x * mask).sum() / mask.sum()
    counts = mask.sum(1)
    return ((x * mask).sum(1)[counts > 0] / counts[counts > 0]).mean()


for i, o in enumerate([(1, .95, 0), (1, 1, 0), (.9, .3, 0), (1, .95, .05), (.99, 0, 0)]):
    out[f"gae.{i}.opts"], out[f"gae.{i}.advantage"] = torch.tensor(o).float(), gae(*o).float()
    out[f"gae.{i}.target"] = ((gae(*o) + value) * mask).float()
for i in range(2):
    out[f"group.{i}"] = grouped(i).float()
advantage = gae(1, .95, 0).float().double()
out["advantage"] = advantage.float()
for i, (by_token, dual, truncate, (low, high), kl) in enumerate(
        itertools.product((0, 1), (0, 1.6), (0, 1.2), ((.2, .28), (.35, .2)), (0, .1))):
    x = logp.clone().requires_grad_()
    ratio = torch.exp(x - old)
    j = torch.minimum(ratio * advantage, ratio.clamp(1 - low, 1 + high) * advantage)
    if dual:
        j = torch.where(advantage < 0, torch.maximum(j, dual * advantage), j)
    if truncate:
        j = j * torch.exp(old - sampled).clamp(max=truncate)
    away = reference - x
    loss = mean(kl * (torch.exp(away) - away - 1) - j, by_token)
    loss.backward()
    out[f"policy.{i}.opts"], out[f"policy.{i}.loss"] = torch.tensor([by_token, low, high, dual,
                                                                     truncate, kl]), loss.detach()[None].float()
    out[f"policy.{i}.grad"] = x.grad.float()
target = (gae(1, .95, 0) + value).float().double()
out["target"] = (target * mask).float()
for by_token in (0, 1):
    x = (value * .5).float().double().requires_grad_()
    loss = mean(.5 * (x - target) ** 2, by_token)
    loss.backward()
    out[f"value.{by_token}.loss"], out[f"value.{by_token}.grad"] = loss.detach()[None].float(), x.grad.float()
spread = reward[:, None].expand(EPISODES, T)[own]
out["explained"] = (1 - (spread - value[own]).var() / spread.var())[None].float()
save_file({k: v.contiguous() for k, v in out.items()}, f"{sys.argv[1]}/model.safetensors")
sys.stdout.flush()
os._exit(0)             # the end of a process that has imported torch costs half a second
