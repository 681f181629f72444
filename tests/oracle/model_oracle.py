"""What transformers computes for tiny random models of every supported kind, in fp32.

usage: model_oracle.py DIR STEPS       per model DIR/NAME: the checkpoint, and case.safetensors with
           ids, starts, targets, weight (the gradient by each log-probability), logits, logp, grad.* for every
           parameter, logp_bf16, losses of STEPS AdamW steps on that batch (mean cross-entropy, clipped to 0.5, decay
           0.1 on matrices), and lr of each step
       model_oracle.py NONE load DIR   loads each DIR/NAME/saved with transformers and compares its logits with
           case.safetensors
"""
import copy
import gc
import math
import os
import sys

gc.disable()  # its import is half as long uncollected
import torch  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config, Qwen3Config  # noqa: E402

gc.freeze()
gc.enable()
torch.set_num_threads(1)
base = dict(vocab_size=311, hidden_size=48, intermediate_size=80, num_hidden_layers=3, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=256, initializer_range=0.2, pad_token_id=None,
            bos_token_id=1,
            eos_token_id=2)
configs = {
    "llama": LlamaConfig(**base, attention_bias=True, mlp_bias=True, rms_norm_eps=1e-5, rope_parameters=dict(
        rope_type="llama3", rope_theta=10000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
        original_max_position_embeddings=64)),
    "llama_mha": LlamaConfig(**{**base, "num_key_value_heads": 4, "head_dim": 20}, tie_word_embeddings=True,
                             rope_parameters=dict(rope_type="linear", rope_theta=5000.0, factor=3.0)),
    "qwen2": Qwen2Config(**base, rope_parameters=dict(rope_type="yarn", rope_theta=10000.0, factor=4.0,
                                                      original_max_position_embeddings=64)),
    "qwen3": Qwen3Config(**{**base, "head_dim": 32}, tie_word_embeddings=True,
                         rope_parameters=dict(rope_type="default", rope_theta=1000000.0)),
    # heads as large models have them: devices have kernels of their own for these
    "qwen3_wide": Qwen3Config(**{**base, "head_dim": 128, "num_hidden_layers": 2}, tie_word_embeddings=True,
                              rope_parameters=dict(rope_type="default", rope_theta=1000000.0)),
}
lengths = [70, 1, 33, 129]
# Ten steps of warm-up to 3e-4, then a cosine down to a tenth, as one trains.  It must be a run that does not amplify
# roundings, or it compares nothing.  With a constant 1e-3 (and with 3e-4) Adam leaves the region where it is stable:
# the gradient changes its sign from step to step and a difference grows by half in each.  PyTorch in fp32 then ended up
# to 5.8e-4 from PyTorch in fp64, and on a GPU 4.1e-4 (another warm-up and epsilon: 2.2e-3) from itself on the cpu.
# With this schedule fp32 and fp64 differ by 1.6e-6 at most.
lr = [3e-4 * ((s + 1) / 10 if s < 10 else 0.1 + 0.45 * (1 + math.cos(math.pi * (s - 10) / 90))) for s in range(100)]


def logits_of(model, ids, starts):
    return torch.cat([model(ids[None, a:b].long()).logits[0] for a, b in zip(starts[:-1], starts[1:])])


def make(out, steps):
    for number, (name, config) in enumerate(configs.items()):
        torch.manual_seed(number)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager")
        for p_name, p in model.named_parameters():      # nothing at its default
            if p.dim() == 1:
                torch.nn.init.uniform_(p, *((-0.5, 0.5) if p_name.endswith("bias") else (0.5, 1.5)))
        model.save_pretrained(f"{out}/{name}")
        t = sum(lengths)
        starts = [sum(lengths[:i]) for i in range(len(lengths) + 1)]
        ids, targets = torch.randint(311, (t,)), torch.randint(311, (t,))
        weight = torch.randn(t) / t
        logits = logits_of(model, ids, starts)
        logp = logits.log_softmax(-1).gather(1, targets[:, None])[:, 0]
        (logp * weight).sum().backward()
        case = dict(ids=ids.int(), starts=torch.tensor(starts).int(), targets=targets.int(), weight=weight,
                    logits=logits.detach(),
                    logp=logp.detach())
        case.update({"grad." + n: p.grad.clone() for n, p in model.named_parameters()})
        with torch.no_grad():
            half = copy.deepcopy(model).to(torch.bfloat16)
            case["logp_bf16"] = logits_of(half, ids, starts).float().log_softmax(-1).gather(1, targets[:, None])[:, 0]
        groups = [dict(params=[p for p in model.parameters() if p.dim() == 2], weight_decay=0.1),
                  dict(params=[p for p in model.parameters() if p.dim() == 1], weight_decay=0.0)]
        optim, losses = torch.optim.AdamW(groups, lr=lr[0], betas=(0.9, 0.95), eps=1e-8), []
        for now in lr[:steps]:
            for group in optim.param_groups:
                group["lr"] = now
            optim.zero_grad()
            loss = torch.nn.functional.cross_entropy(logits_of(model, ids, starts), targets)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optim.step()
            losses.append(loss.item())
        case["losses"], case["lr"] = torch.tensor(losses), torch.tensor(lr[:steps])
        save_file(case, f"{out}/{name}/case.safetensors")


def check(source):
    for name in configs:
        case = load_file(f"{source}/{name}/case.safetensors")
        model, info = AutoModelForCausalLM.from_pretrained(f"{source}/{name}/saved", dtype=torch.float32,
                                                           output_loading_info=True)
        assert not info["missing_keys"] and not info["unexpected_keys"], info
        with torch.no_grad():
            error = (logits_of(model, case["ids"], case["starts"].tolist()) - case["logits"]).abs().max().item()
        print(name, error)
        assert error < 1e-4, (name, error)


os.environ["HF_HUB_OFFLINE"] = "1"
if sys.argv[2] == "load":
    check(sys.argv[3])
else:
    make(sys.argv[1], int(sys.argv[2]))
sys.stdout.flush()
gc.freeze()  # the interpreter's end would collect all of it
