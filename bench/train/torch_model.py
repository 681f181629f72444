"""The transformer of src/nn in PyTorch, small and plain, for comparisons: reads what `warpwright model init` writes.

Rows are whole sequences of one length, causal, so that PyTorch's fastest attention applies.  Weights are fp32; with
bf16, products run under autocast, which is how bf16 models with fp32 masters are trained.  Two things can be set
otherwise, to see what they do to a run: `residual` (the type of the sums between the layers) and `head` (whether the
logits are made in fp32).
"""
import json
import struct

import torch
import torch.nn.functional as F


def read_safetensors(path):
    with open(path, "rb") as f:
        data = f.read()
    n = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + n])
    header.pop("__metadata__", None)
    types = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}
    out = {}
    for name, t in header.items():
        begin, end = (8 + n + x for x in t["data_offsets"])
        out[name] = torch.frombuffer(bytearray(data[begin:end]), dtype=types[t["dtype"]]).reshape(t["shape"]).float()
    return out


class Layer(torch.nn.Module):
    def __init__(self, c):
        super().__init__()
        h, d, f = c["hidden_size"], c["head_dim"], c["intermediate_size"]
        self.heads, self.kv, self.d, self.eps = c["num_attention_heads"], c["num_key_value_heads"], d, c["rms_norm_eps"]

        def linear(m, n):
            return torch.nn.Linear(m, n, bias=False)
        self.norm1, self.norm2 = (torch.nn.RMSNorm(h, eps=self.eps) for _ in range(2))
        self.q, self.k, self.v = linear(h, self.heads * d), linear(h, self.kv * d), linear(h, self.kv * d)
        self.o = linear(self.heads * d, h)
        qk_norm = c["model_type"] == "qwen3"
        self.q_norm, self.k_norm = (torch.nn.RMSNorm(d, eps=self.eps) if qk_norm else torch.nn.Identity()
                                    for _ in range(2))
        self.gate, self.up, self.down = linear(h, f), linear(h, f), linear(f, h)

    def forward(self, x, cos, sin):
        b, t, _ = x.shape
        n = self.norm1(x)
        q = self.q_norm(self.q(n).view(b, t, self.heads, self.d)).transpose(1, 2)
        k = self.k_norm(self.k(n).view(b, t, self.kv, self.d)).transpose(1, 2)
        v = self.v(n).view(b, t, self.kv, self.d).transpose(1, 2)

        def turn(y):
            one, two = y.chunk(2, -1)
            return (y * cos + torch.cat((-two, one), -1) * sin).to(v.dtype)
        y = F.scaled_dot_product_attention(turn(q), turn(k), v, is_causal=True, enable_gqa=self.heads != self.kv)
        x = x + self.o(y.transpose(1, 2).reshape(b, t, -1))
        n = self.norm2(x)
        return x + self.down(F.silu(self.gate(n)) * self.up(n))


class Model(torch.nn.Module):
    def __init__(self, c, residual=None, head_fp32=False):
        super().__init__()
        self.c, self.residual, self.head_fp32 = c, residual, head_fp32
        self.embed = torch.nn.Embedding(c["vocab_size"], c["hidden_size"])
        self.layers = torch.nn.ModuleList(Layer(c) for _ in range(c["num_hidden_layers"]))
        self.norm = torch.nn.RMSNorm(c["hidden_size"], eps=c["rms_norm_eps"])
        self.head = torch.nn.Linear(c["hidden_size"], c["vocab_size"], bias=False)
        if c.get("tie_word_embeddings"):
            self.head.weight = self.embed.weight

    def load(self, directory):
        names = {"model.embed_tokens": "embed", "model.norm": "norm", "lm_head": "head", "input_layernorm": "norm1",
                 "post_attention_layernorm": "norm2", "self_attn.": "", "mlp.": "", "_proj": "",
                 "model.layers": "layers"}
        state = {}
        for name, value in read_safetensors(f"{directory}/model.safetensors").items():
            for old, new in names.items():
                name = name.replace(old, new)
            state[name] = value
        if self.c.get("tie_word_embeddings"):
            state["head.weight"] = state["embed.weight"]
        self.load_state_dict(state)
        return self

    def angles(self, t, device):
        d = self.c["head_dim"]
        freq = self.c.get("rope_theta", 10000.0) ** (-torch.arange(0, d, 2, device=device).float() / d)
        a = torch.arange(t, device=device).float()[:, None] * freq
        a = torch.cat((a, a), -1)
        return a.cos(), a.sin()

    def forward(self, ids, targets):
        cos, sin = self.angles(ids.shape[1], ids.device)
        x = self.embed(ids)
        x = x.to(self.residual or x.dtype)
        for layer in self.layers:
            x = layer(x, cos, sin)
        with torch.autocast(ids.device.type, enabled=torch.is_autocast_enabled(ids.device.type) and not self.head_fp32):
            x = self.norm(x)
            logits = self.head(x.float() if self.head_fp32 else x)
        return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


def optimizer(model, recipe, fused):
    matrices = [p for p in model.parameters() if p.dim() == 2]
    vectors = [p for p in model.parameters() if p.dim() == 1]
    return torch.optim.AdamW([dict(params=matrices, weight_decay=recipe["weight-decay"]),
                              dict(params=vectors, weight_decay=0.0)],
                             lr=recipe["lr"], betas=(recipe["beta1"], recipe["beta2"]), eps=recipe["eps"], fused=fused)
