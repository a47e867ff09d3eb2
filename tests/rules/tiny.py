# SPDX-License-Identifier: BSD-3-Clause
"""Sizes at which any named config of configs/ trains within a second on a CPU: `--set` values by model."""

_TOKENS = ["model.width=16", "model.heads=2", "model.vocabulary=256", "data.kind=synthetic", "data.classes=256",
           "data.input_shape=[16]", "data.target_shape=[16]"]
MODEL = {
    "vit": ["model.image=[16,32]", "model.width=16", "model.depth=1", "model.heads=2", "data.kind=synthetic",
            "data.input_shape=[{channels_in},16,32]", "data.target_shape=[{channels_in},16,32]"],
    "swinir": ["model.width=12", "model.depths=[1,1]", "model.heads=[2,2]", "data.kind=synthetic",
               "data.input_shape=[3,16,16]", "data.target_shape=[3,32,32]"],
    "mlp": ["data.points=200"],
    "gpt": [*_TOKENS, "model.layers=2"],
    "llama": [*_TOKENS, "model.layers=1", "model.kv_heads=1", "model.hidden=32"],
}
SHORT = ["train.steps=1", "train.epochs=0", "train.whole_epochs=false", "train.global_batch=2", "train.local_batch=null",
         "train.micro_batch=all", "data.samples=4", "data.workers=1", "train.device=cpu"]
