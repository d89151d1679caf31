"""The model of a run: from the shape columns of its row to a configuration, or why the row does not say enough."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from planner.accuracy.run_log import Run

Config = dict[str, Any]


class Skipped(Exception):
    """Why a run is not held against the planner's figures; the text is the reason, short enough to count by."""

    def __init__(self, reason: str) -> None:
        super().__init__("".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in reason))


def stated(run: Run, *columns: str) -> None:
    """Skipped where a column is empty; nothing is guessed."""
    for column in columns:
        if getattr(run, column) is None:
            raise Skipped(f"{column} not stated")


def model_config(run: Run) -> Config:
    """The run's model as the content of a Hugging Face config.json.

    Raises Skipped for a family that the columns cannot describe, and for a missing size.
    """
    stated(run, "architecture")
    family = FAMILIES.get(str(run.architecture))
    if family is None:
        raise Skipped(f"architecture {run.architecture}")
    stated(run, "hidden", "layers", "heads", "vocab", "tied_embeddings", "sequence_length")
    return {**_shape(run), **family(run)}


def _shape(run: Run) -> Config:
    """What every family's configuration holds; the position table is as long as the sequence."""
    return {
        "hidden_size": run.hidden,
        "num_hidden_layers": run.layers,
        "num_attention_heads": run.heads,
        "head_dim": _head_dim(run),
        "vocab_size": run.vocab,
        "tie_word_embeddings": run.tied_embeddings,
        "max_position_embeddings": run.sequence_length,
    }


def _head_dim(run: Run) -> int:
    """The stated width of a head, else the heads' share of the hidden width."""
    hidden, heads = int(run.hidden or 0), int(run.heads or 1)
    if run.head_dim is None and hidden % heads:
        raise Skipped("heads do not divide hidden")
    return run.head_dim or hidden // heads


def _gated(run: Run) -> Config:
    """Key heads and width of a dense model with a gated block."""
    stated(run, "kv_heads", "ffn_hidden")
    return {"num_key_value_heads": run.kv_heads, "intermediate_size": run.ffn_hidden}


def _every_head_has_its_key(run: Run) -> None:
    """Skipped where heads share keys in a family that cannot."""
    if run.kv_heads not in (None, run.heads):
        raise Skipped(f"architecture {run.architecture} with shared key heads")


def _llama(run: Run) -> Config:
    return {"model_type": "llama", **_gated(run)}


def _gpt(run: Run) -> Config:
    """GPT-2, or where heads share keys Megatron's GPT block with grouped queries: LayerNorm, plain MLP, biases.

    The width is 4 times the hidden width where the row names none, as the family says.
    """
    width = run.ffn_hidden or 4 * int(run.hidden or 0)
    if run.kv_heads in (None, run.heads):
        return {"model_type": "gpt2", "n_inner": width}
    return {
        "model_type": "starcoder2", "num_key_value_heads": run.kv_heads, "intermediate_size": width, "use_bias": True,
        "sliding_window": None, "residual_dropout": 0.1, "embedding_dropout": 0.1, "attention_dropout": 0.1,
    }  # fmt: skip


def _mpt(run: Run) -> Config:
    """MPT: the width is a whole multiple of the hidden width, 4 where the row names none, as the family says."""
    _every_head_has_its_key(run)
    hidden = int(run.hidden or 1)
    if run.ffn_hidden is not None and run.ffn_hidden % hidden:
        raise Skipped("ffn_hidden is no multiple of hidden")
    return {"model_type": "mpt", "expansion_ratio": run.ffn_hidden // hidden if run.ffn_hidden else 4}


def _falcon(run: Run) -> Config:
    """Falcon: one key head is the 7B's block, groups of heads the 40B's; nothing tells the others apart."""
    stated(run, "kv_heads", "ffn_hidden")
    if run.kv_heads == run.heads:
        raise Skipped("architecture falcon with a key for every head")
    grouped = run.kv_heads != 1
    return {
        "model_type": "falcon", "new_decoder_architecture": grouped, "multi_query": not grouped,
        "num_kv_heads": run.kv_heads, "ffn_hidden_size": run.ffn_hidden, "parallel_attn": True, "bias": False,
        "alibi": False,
    }  # fmt: skip


def _gemma(run: Run) -> Config:
    """Gemma: the generation is in the name; a digit before `b` is a size."""
    generation = re.search(r"gemma[-_ ]?([123])(?![0-9.]*b)", (run.model or "").lower())
    named = {"2": "gemma2", "3": "gemma3_text"}
    return {"model_type": named.get(generation.group(1), "gemma") if generation else "gemma", **_gated(run)}


def _qwen(run: Run) -> Config:
    """Qwen: the generation is in the name, a number before `b` is a size; the first ones have the block of Qwen2."""
    name = (run.model or "").lower()
    if "qwen" not in name:
        raise Skipped("qwen generation not in the name")
    later = re.search(r"qwen[-_ ]?3(?![0-9.]*b)", name)
    return {"model_type": "qwen3" if later else "qwen2", **_gated(run)}


def _moe_llama(run: Run) -> Config:
    """Experts in every layer: Qwen3's by the name, else Mixtral's."""
    stated(run, "kv_heads", "experts", "experts_per_token", "expert_ffn_hidden")
    if run.shared_experts:
        raise Skipped("architecture moe-llama with shared experts")
    common = {"num_key_value_heads": run.kv_heads, "num_experts_per_tok": run.experts_per_token}
    if re.search(r"qwen[-_ ]?3", (run.model or "").lower()):
        return {
            **common, "model_type": "qwen3_moe", "num_experts": run.experts,
            "moe_intermediate_size": run.expert_ffn_hidden,
        }  # fmt: skip
    return {
        **common, "model_type": "mixtral", "num_local_experts": run.experts,
        "intermediate_size": run.expert_ffn_hidden, "sliding_window": None,
    }  # fmt: skip


def _mla_moe(run: Run) -> Config:
    """DeepSeek-V3 by its name: the log has no columns for the latent widths and the dense layers of other models."""
    stated(run, "ffn_hidden", "experts", "experts_per_token", "expert_ffn_hidden", "shared_experts")
    if not re.search(r"deepseek[-_ ]?(v3|r1)", (run.model or "").lower()):
        raise Skipped("architecture mla-moe without latent widths")
    return {
        "model_type": "deepseek_v3", "head_dim": None, "num_key_value_heads": run.heads,
        "intermediate_size": run.ffn_hidden, "n_routed_experts": run.experts,
        "num_experts_per_tok": run.experts_per_token, "moe_intermediate_size": run.expert_ffn_hidden,
        "n_shared_experts": run.shared_experts,
    }  # fmt: skip


FAMILIES: Mapping[str, Callable[[Run], Config]] = {
    "llama": _llama, "gpt": _gpt, "mpt": _mpt, "falcon": _falcon, "gemma": _gemma, "qwen": _qwen,
    "moe-llama": _moe_llama, "mla-moe": _mla_moe,
}  # fmt: skip
