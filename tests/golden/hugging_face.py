# SPDX-License-Identifier: BSD-3-Clause
"""Folders of tiny models as transformers saves them, with the logits that it computes: what `braid convert` must reproduce.

    python tests/golden/hugging_face.py                 writes the folders of the installed version of transformers
    python tests/golden/hugging_face.py check FOLDER    loads a folder that braid wrote, and prints logits of tokens 0, 1, 2, ...

A folder of hugging_face/ has config.json and the weights by save_pretrained, and expected.safetensors: `input` (tokens) and
`logits`, from a run in fp64 where the weights are fp64, else in fp32. Versions 4 and 5 of transformers write different keys into
config.json, so each has its own folders: run the script with both. Made with torch 2.15.0, transformers 4.57.1 and 5.23.0.
"""
import json
import pathlib
import shutil
import sys

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, GPT2Model, LlamaConfig, LlamaForCausalLM

OUT = pathlib.Path(__file__).parent / "hugging_face"
FLOAT = (torch.float32, torch.float, torch.Tensor.float)
VERSION = int(transformers.__version__.split(".")[0])


def wide_floats(on):
    """transformers raises norms, softmax and rotary tables to fp32 by name; a run in fp64 must not be rounded there."""
    if on:
        torch.float32 = torch.float = torch.float64
        torch.Tensor.float = torch.Tensor.double
    else:
        torch.float32, torch.float, torch.Tensor.float = FLOAT


def filled(model):
    """Seeded weights that no layer is blind to: also biases and norms away from 0 and 1."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=generator, dtype=torch.float64) * (0.1 if p.dim() == 1 else 0.3)
            p.copy_(1 + noise if p.dim() == 1 and name.endswith("weight") else noise)
    return model.eval()


def logits_of(kind, config, weights, tokens, wide):
    wide_floats(wide)
    model = kind(config).to(torch.float64 if wide else FLOAT[0]).eval()
    model.load_state_dict(weights)
    with torch.no_grad():
        logits = model(tokens).logits
    wide_floats(False)
    assert logits.dtype == (torch.float64 if wide else torch.float32), logits.dtype
    return logits


def write(name, kind, config, wide=True, saved=None, **how):
    folder = OUT / name
    shutil.rmtree(folder, ignore_errors=True)
    config._attn_implementation = "eager"
    model = filled(kind(config).to(torch.float64 if wide else torch.float32))
    (saved(model) if saved else model).save_pretrained(folder, **how)
    (folder / "generation_config.json").unlink(missing_ok=True)
    tokens = torch.randint(0, config.vocab_size, (2, 11), generator=torch.Generator().manual_seed(2))
    logits = logits_of(kind, config, model.state_dict(), tokens, wide)
    save_file({"input": tokens, "logits": logits.contiguous()}, folder / "expected.safetensors")
    size = sum(file.stat().st_size for file in folder.iterdir())
    print(f"{name}: {size / 1000:.0f} kB, logits up to {logits.abs().max().item():.1f}")
    return folder


def gpt(**more):
    return GPT2Config(**{**dict(vocab_size=23, n_positions=16, n_embd=12, n_layer=2, n_head=3), **more})


def llama(**more):
    # Head width 8 with theta 1000: wavelengths 6, 35, 199 and 1117, so that original length 128 has some of each kind.
    return LlamaConfig(**{**dict(vocab_size=23, hidden_size=16, intermediate_size=20, num_hidden_layers=2, num_attention_heads=2,
                                 num_key_value_heads=1, max_position_embeddings=256, rms_norm_eps=1e-5,
                                 tie_word_embeddings=False), **more})


def rope(theta, **scaling):
    if VERSION >= 5:
        return {"rope_parameters": {"rope_type": "default", **scaling, "rope_theta": theta}}
    return {"rope_theta": theta, "rope_scaling": scaling or None}


LLAMA31 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=128)


def old_gpt2(folder):
    """As the hub has gpt2: no prefix, causal masks among the weights, a config.json of 2019."""
    weights = load_file(folder / "model.safetensors")
    for layer in range(2):
        weights[f"h.{layer}.attn.bias"] = torch.tril(torch.ones(16, 16)).view(1, 1, 16, 16)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    kept = ("activation_function", "attn_pdrop", "embd_pdrop", "resid_pdrop", "initializer_range", "layer_norm_epsilon", "model_type",
            "n_embd", "n_head", "n_layer", "n_positions", "vocab_size", "bos_token_id", "eos_token_id", "summary_type")
    config = {key: config[key] for key in kept}
    (folder / "config.json").write_text(json.dumps({**config, "architectures": ["GPT2LMHeadModel"], "n_ctx": 16}, indent=2) + "\n")


def write_version_4():
    write("gpt2", GPT2LMHeadModel, gpt())
    write("gpt2_untied", GPT2LMHeadModel, gpt(tie_word_embeddings=False, n_inner=48, activation_function="gelu_pytorch_tanh",
                                              layer_norm_epsilon=1e-3, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0))
    old_gpt2(write("gpt2_old", GPT2LMHeadModel, gpt(), wide=False, saved=lambda model: model.transformer))
    write("llama2", LlamaForCausalLM, llama(num_key_value_heads=2, rms_norm_eps=1e-6, **rope(10000.0)))
    write("llama3", LlamaForCausalLM, llama(**rope(500000.0)), max_shard_size="8kB")
    write("llama31", LlamaForCausalLM, llama(**rope(1000.0, **LLAMA31)))
    write("llama32_tied", LlamaForCausalLM, llama(tie_word_embeddings=True, **rope(1000.0, **{**LLAMA31, "factor": 32.0})))
    write("llama_linear", LlamaForCausalLM, llama(**rope(10000.0, type="linear", factor=4.0)))
    write("llama_fp32", LlamaForCausalLM, llama(**rope(500000.0)), wide=False)


def write_version_5():
    write("gpt2_v5", GPT2LMHeadModel, gpt())
    write("gpt2_body_v5", GPT2LMHeadModel, gpt(), saved=lambda model: model.transformer)
    write("llama3_v5", LlamaForCausalLM, llama(**rope(500000.0)))
    write("llama32_tied_v5", LlamaForCausalLM, llama(tie_word_embeddings=True, **rope(1000.0, **LLAMA31)))


def check(folder):
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    tokens = torch.arange(min(model.config.vocab_size, 8)).view(1, -1)
    with torch.no_grad():
        print(type(model).__name__, model.dtype, model(tokens).logits[0, -1].tolist())


if __name__ == "__main__":
    torch.manual_seed(0)
    if sys.argv[1:2] == ["check"]:
        check(sys.argv[2])
    else:
        write_version_5() if VERSION >= 5 else write_version_4()
