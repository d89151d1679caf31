"""Models of the reports: names of the catalog, or the fields of their config.json that decide the shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Config = Mapping[str, Any]


def _bloom(hidden: int) -> Config:
    return {"model_type": "bloom", "hidden_size": hidden, "n_layer": 24, "n_head": 16, "vocab_size": 250880}


def _pythia(hidden: int, layers: int, heads: int) -> Config:
    return {
        "model_type": "gpt_neox", "hidden_size": hidden, "intermediate_size": 4 * hidden, "num_hidden_layers": layers,
        "num_attention_heads": heads, "vocab_size": 50304, "tie_word_embeddings": False,
    }  # fmt: skip


def _t5(model_type: str, vocabulary: int) -> Config:
    return {
        "model_type": model_type, "d_model": 4096, "d_kv": 64, "d_ff": 10240, "num_layers": 24, "num_heads": 64,
        "vocab_size": vocabulary, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False,
    }  # fmt: skip


def _baichuan(vocabulary: int) -> Config:
    return {
        "model_type": "baichuan", "hidden_size": 5120, "intermediate_size": 13696, "num_hidden_layers": 40,
        "num_attention_heads": 40, "vocab_size": vocabulary, "model_max_length": 4096, "tie_word_embeddings": False,
    }  # fmt: skip


def _qwen2(hidden: int, width: int, layers: int, heads: int, kv_heads: int, **more: Any) -> Config:
    return {
        "model_type": "qwen2", "hidden_size": hidden, "intermediate_size": width, "num_hidden_layers": layers,
        "num_attention_heads": heads, "num_key_value_heads": kv_heads, "vocab_size": 152064,
        "tie_word_embeddings": False, **more,
    }  # fmt: skip


QWEN2_VISION = {
    "depth": 32, "embed_dim": 1280, "hidden_size": 8192, "num_heads": 16, "mlp_ratio": 4, "patch_size": 14,
    "spatial_merge_size": 2, "temporal_patch_size": 2, "in_channels": 3,
}  # fmt: skip
QWEN2_5_VISION = {
    "depth": 32, "hidden_size": 1280, "intermediate_size": 3420, "out_hidden_size": 3584, "num_heads": 16,
    "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2, "in_channels": 3,
}  # fmt: skip
LLAMA_VISION = {
    "model_type": "mllama",
    "text_config": {
        "model_type": "mllama_text_model", "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 100,
        "num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 128256,
        "cross_attention_layers": list(range(3, 100, 5)), "pad_token_id": 128004,
    },
    "vision_config": {
        "model_type": "mllama_vision_model", "hidden_size": 1280, "intermediate_size": 5120, "num_hidden_layers": 32,
        "num_global_layers": 8, "attention_heads": 16, "image_size": 560, "patch_size": 14, "max_num_tiles": 4,
        "vision_output_dim": 7680, "intermediate_layers_indices": [3, 7, 15, 23, 30],
    },
}  # fmt: skip
CODEGEN = {
    "model_type": "codegen", "n_embd": 6144, "n_layer": 34, "n_head": 24, "n_positions": 2048, "n_ctx": 2048,
    "rotary_dim": 64, "vocab_size": 51200, "tie_word_embeddings": False,
}  # fmt: skip
GPT_3 = {
    "model_type": "gpt2", "n_embd": 4096, "n_layer": 32, "n_head": 32, "n_positions": 2048, "vocab_size": 50257,
}  # fmt: skip
QWEN_14B = {
    "model_type": "qwen", "hidden_size": 5120, "intermediate_size": 27392, "num_hidden_layers": 40,
    "num_attention_heads": 40, "kv_channels": 128, "vocab_size": 152064, "no_bias": True, "tie_word_embeddings": False,
}  # fmt: skip
QWEN_7B = {
    **QWEN_14B, "hidden_size": 4096, "intermediate_size": 22016, "num_hidden_layers": 32, "num_attention_heads": 32,
    "vocab_size": 151936,
}  # fmt: skip

# As the reports name them. The first LLaMA has the shape of the second in these sizes.
MODELS: Mapping[str, str | Config] = {
    "BLOOM-1.1B": _bloom(1536),
    "BLOOM-560M": _bloom(1024),
    "Baichuan-13B": _baichuan(64000),
    "Baichuan2-13B": _baichuan(125696),
    "CodeGen-16B": CODEGEN,
    "FLAN-T5-XXL": _t5("t5", 32128),
    "GPT-2 1.5B (48L, h1600)": "gpt2-xl",
    "GPT-2 774M": "gpt2-large",
    "GPT-3 6.7B": GPT_3,
    "GPT-J-6B": "gpt-j-6b",
    "LLaMA-13B (also 7B)": "llama-2-13b",
    "Llama-13B": "llama-2-13b",
    "Llama-2-13B": "llama-2-13b",
    "Llama-2-70B": "llama-2-70b",
    "Llama-2-70B PPO": "llama-2-70b",
    "Llama-2-7B": "llama-2-7b",
    "Llama-2-7B full": "llama-2-7b",
    "Llama-3-70B": "llama-3-70b",
    "Llama-3-8B": "llama-3-8b",
    "Llama-3-8B-Instruct": "llama-3-8b",
    "Llama-3.1-405B": "llama-3.1-405b",
    "Llama-3.2-90B-Vision": LLAMA_VISION,
    "Llama-34B DPO": "yi-34b",
    "MPT-7B": "mpt-7b",
    "Mixtral-8x7B": "mixtral-8x7b",
    "Mixtral-8x7B DPO LoRA": "mixtral-8x7b",
    "OPT-1.3B": "opt-1.3b",
    "OPT-13B actor + OPT-350M critic RLHF": "opt-13b",
    "Pythia-1B": _pythia(2048, 16, 8),
    "Pythia-2.8B": _pythia(2560, 32, 32),
    "Pythia-6.9B": "pythia-6.9b",
    "Qwen-14B-chat": QWEN_14B,
    "Qwen-7B": QWEN_7B,
    "Qwen1.5-72B": _qwen2(8192, 24576, 80, 64, 64),
    "Qwen2-72B": "qwen2.5-72b",
    "Qwen2-72B-Instruct": "qwen2.5-72b",
    "Qwen2-VL-72B": _qwen2(8192, 29568, 80, 64, 8, model_type="qwen2_vl", vision_config=QWEN2_VISION),
    "Qwen2.5-32B": "qwen2.5-32b",
    "Qwen2.5-32B-Instruct": "qwen2.5-32b",
    "Qwen2.5-3B": "qwen2.5-3b",
    "Qwen2.5-VL-7B full": _qwen2(3584, 18944, 28, 28, 4, model_type="qwen2_5_vl", vision_config=QWEN2_5_VISION),
    "Qwen3-14B full": "qwen3-14b",
    "Qwen3-4B": "qwen3-4b",
    "T5-11B": "t5-11b",
    "T5-3B": "t5-3b",
    "bert-large": "bert-large",
    "mt0-xxl-mt 13B": _t5("mt5", 250112),
    "t5-3b": "t5-3b",
}  # fmt: skip
