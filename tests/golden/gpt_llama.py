# SPDX-License-Identifier: BSD-3-Clause
"""Golden logits and gradients of tiny GPT-2 and Llama models from the `transformers` package.

    python tests/golden/gpt_llama.py          writes gpt_*.safetensors and llama_*.safetensors beside this file

Each file holds `input` and `target` (some targets are -100), param.<name> in fp32, and from a run in fp64 the `logits`, the
`loss` (mean cross-entropy of the targets as they stand, not shifted) and grad.<name> of every parameter; `logits_fp32` comes
from the package as it is, in fp32. Made with torch 2.11.0 and transformers 4.57.1.
"""
import pathlib

import torch
from safetensors.torch import save_file
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

HERE = pathlib.Path(__file__).parent
FLOAT = (torch.float32, torch.float, torch.Tensor.float)


def wide_floats(on):
    """transformers raises norms, softmax and rotary tables to fp32 by name; the fp64 run must not be rounded there."""
    if on:
        torch.float32 = torch.float = torch.float64
        torch.Tensor.float = torch.Tensor.double
    else:
        torch.float32, torch.float, torch.Tensor.float = FLOAT


def fill(model):
    """Seeded weights that no layer is blind to: also biases and norms away from 0 and 1."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=generator, dtype=FLOAT[0]) * (0.1 if p.dim() == 1 else 0.2)
            p.copy_(1 + noise if p.dim() == 1 and name.endswith("weight") else noise)


def run(make, tokens, target):
    model = make().eval()
    fill(model)
    weights = {name: p.detach().clone() for name, p in model.named_parameters()}
    out = {f"param.{name}": p for name, p in weights.items()}
    out["logits_fp32"] = model(tokens).logits.detach()
    wide_floats(True)
    model = make().eval().double()
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(weights[name])
    logits = model(tokens).logits
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=-100)
    loss.backward()
    wide_floats(False)
    assert logits.dtype == torch.float64
    print(loss.item(), (logits - out["logits_fp32"]).abs().max().item())
    out.update({f"grad.{name}": p.grad for name, p in model.named_parameters()})
    out.update(logits=logits.detach(), loss=loss.detach().reshape(1), input=tokens, target=target)
    return out


def gpt(tied):
    config = GPT2Config(vocab_size=29, n_positions=16, n_embd=24, n_layer=2, n_head=3, tie_word_embeddings=tied,
                        attn_implementation="eager")
    return lambda: GPT2LMHeadModel(config)


def llama(tied, factor):
    # Head width 8 gives wavelengths 6, 35, 199 and 1117: original length 128 puts them below 32, between, and above 128.
    scaling = dict(rope_type="llama3", factor=factor, low_freq_factor=1.0, high_freq_factor=4.0,
                   original_max_position_embeddings=128)
    config = LlamaConfig(vocab_size=31, hidden_size=32, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
                         num_key_value_heads=2, max_position_embeddings=256,
                         rms_norm_eps=1e-5, rope_theta=500000.0 if factor == 1 else 1000.0, tie_word_embeddings=tied,
                         rope_scaling=None if factor == 1 else scaling, attn_implementation="eager")
    return lambda: LlamaForCausalLM(config)


def main():
    generator = torch.Generator().manual_seed(2)
    for name, make, vocabulary in [("gpt_tied", gpt(True), 29), ("gpt_untied", gpt(False), 29),
                                   ("llama_scaled", llama(False, 8.0), 31), ("llama_tied", llama(True, 1), 31)]:
        tokens = torch.randint(0, vocabulary, (2, 12), generator=generator)
        target = torch.randint(0, vocabulary, (2, 12), generator=generator)
        target[0, :3] = -100
        target[1, 7] = -100
        tensors = run(make, tokens, target)
        save_file({k: v.contiguous() for k, v in tensors.items()}, HERE / f"{name}.safetensors")


if __name__ == "__main__":
    main()
