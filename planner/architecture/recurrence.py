"""Recurrent mixers: Mamba, Mamba-2 and gated delta rule; their shapes and tensors."""

from __future__ import annotations

from math import ceil

from planner.architecture.facts import Facts
from planner.architecture.shape import Recurrence, Tensor
from planner.architecture.tensors import linear

MIXERS = ("mamba", "mamba2", "gated_delta", "short_conv", "lightning")


def recurrence_of(facts: Facts, kind: str) -> Recurrence:
    """Shape of a recurrent mixer of the given kind."""
    return {"mamba": _mamba, "mamba2": _mamba2, "gated_delta": _gated_delta, "short_conv": _short_conv,
            "lightning": _lightning}[kind](facts)


def recurrence_tensors(facts: Facts, mixer: Recurrence, hidden: int) -> list[Tensor]:
    """Every parameter tensor of one recurrent mixer."""
    return {"mamba": _mamba_tensors, "mamba2": _mamba2_tensors, "gated_delta": _gated_delta_tensors,
            "short_conv": _short_conv_tensors, "lightning": _lightning_tensors}[mixer.kind](facts, mixer, hidden)


def _mamba(facts: Facts) -> Recurrence:
    """Mamba (arXiv:2312.00752): rank of the step projection is hidden / 16, rounded up, unless given."""
    hidden = facts.size("hidden")
    automatic = ceil(hidden / 16)
    rank = automatic if facts.config.get("time_step_rank") == "auto" else facts.size("time_step_rank", automatic)
    inner = facts.size("mixer_width", int(facts.real("mixer_expand", 2.0) * hidden))
    return Recurrence("mamba", inner, facts.size("state"), facts.size("conv_kernel"), rank=rank)


def _mamba_tensors(facts: Facts, mixer: Recurrence, hidden: int) -> list[Tensor]:
    name, inner, state, rank = facts.names["mixer"], mixer.inner, mixer.state, mixer.rank
    bias = facts.flag("mixer_bias")
    tensors = [
        Tensor(f"{name}.A_log", (inner, state), "mixer"),
        Tensor(f"{name}.D", (inner,), "mixer"),
        *_convolution(facts, f"{name}.conv1d", inner, mixer.conv_kernel),
        *linear(f"{name}.in_proj", 2 * inner, hidden, "mixer", bias),
        *linear(f"{name}.x_proj", rank + 2 * state, inner, "mixer"),
        *linear(f"{name}.dt_proj", inner, rank, "mixer", True),
        *linear(f"{name}.out_proj", hidden, inner, "mixer", bias),
    ]
    if facts.flag("mixer_norms"):
        widths = {"dt_layernorm": rank, "b_layernorm": state, "c_layernorm": state}
        tensors += [Tensor(f"{name}.{part}.weight", (width,), "norm") for part, width in widths.items()]
    return tensors


def _mamba2(facts: Facts) -> Recurrence:
    expanded = int(facts.real("mixer_expand", 2.0) * facts.size("hidden"))
    heads = facts.size("mixer_heads")
    inner = facts.size("mixer_width", heads * facts.size("mixer_head_dim", expanded // heads))
    return Recurrence("mamba2", inner, facts.size("state"), facts.size("conv_kernel"), heads,
                      facts.size("mixer_groups", 1))


def _mamba2_tensors(facts: Facts, mixer: Recurrence, hidden: int) -> list[Tensor]:
    """Mamba-2 (arXiv:2405.21060, section 7): one projection gives gate, input, B, C and step."""
    name, inner, heads, bias = facts.names["mixer"], mixer.inner, mixer.heads, facts.flag("mixer_bias")
    convolved = inner + 2 * mixer.groups * mixer.state
    normed = facts.flag("mixer_norm", True)
    return [
        *(Tensor(f"{name}.{part}", (heads,), "mixer") for part in ("dt_bias", "A_log", "D")),
        *_convolution(facts, f"{name}.conv1d", convolved, mixer.conv_kernel),
        *linear(f"{name}.in_proj", inner + convolved + heads, hidden, "mixer", bias),
        *([Tensor(f"{name}.norm.weight", (inner,), "norm")] if normed else []),
        *linear(f"{name}.out_proj", hidden, inner, "mixer", facts.flag("mixer_output_bias", bias)),
    ]


def _gated_delta(facts: Facts) -> Recurrence:
    heads, key, value = facts.size("mixer_heads"), facts.size("mixer_key_dim"), facts.size("mixer_value_dim")
    return Recurrence("gated_delta", heads * value, key, facts.size("conv_kernel"), heads,
                      facts.size("mixer_key_heads"), key_dim=key, value_dim=value)


def _gated_delta_tensors(facts: Facts, mixer: Recurrence, hidden: int) -> list[Tensor]:
    """Gated delta networks (arXiv:2412.06464): key, query, value and gate projections with a short convolution."""
    name, inner, heads = facts.names["mixer"], mixer.inner, mixer.heads
    keys = mixer.groups * mixer.key_dim
    return [
        Tensor(f"{name}.dt_bias", (heads,), "mixer"),
        Tensor(f"{name}.A_log", (heads,), "mixer"),
        Tensor(f"{name}.conv1d.weight", (2 * keys + inner, 1, mixer.conv_kernel), "mixer"),
        *_delta_projections(facts, name, hidden, keys, mixer),
        Tensor(f"{name}.norm.weight", (mixer.value_dim,), "norm"),
        *linear(f"{name}.out_proj", hidden, inner, "mixer"),
    ]


def _delta_projections(facts: Facts, name: str, hidden: int, keys: int, mixer: Recurrence) -> list[Tensor]:
    inner, heads = mixer.inner, mixer.heads
    if facts.flag("mixer_split_projections"):
        widths = {"in_proj_qkv": 2 * keys + inner, "in_proj_z": inner, "in_proj_b": heads, "in_proj_a": heads}
    else:
        widths = {"in_proj_qkvz": 2 * keys + 2 * inner, "in_proj_ba": 2 * heads}
    return [tensor for part, width in widths.items() for tensor in linear(f"{name}.{part}", width, hidden, "mixer")]


def _short_conv(facts: Facts) -> Recurrence:
    hidden = facts.size("hidden")
    return Recurrence("short_conv", hidden, 1, facts.size("conv_kernel"))


def _short_conv_tensors(facts: Facts, mixer: Recurrence, hidden: int) -> list[Tensor]:
    """LFM2's gated short convolution: one projection gives two gates and the input."""
    bias = facts.flag("conv_bias")
    return [
        *_convolution(facts, "conv.conv", hidden, mixer.conv_kernel),
        *linear("conv.in_proj", 3 * hidden, hidden, "mixer", bias),
        *linear("conv.out_proj", hidden, hidden, "mixer", bias),
    ]


def _lightning(facts: Facts) -> Recurrence:
    heads = facts.size("heads")
    head_dim = facts.size("head_dim", facts.size("hidden") // heads)
    return Recurrence("lightning", heads * head_dim, head_dim, 1, heads, key_dim=head_dim, value_dim=head_dim)


def _lightning_tensors(facts: Facts, mixer: Recurrence, hidden: int) -> list[Tensor]:
    """Lightning attention (arXiv:2405.17381) as MiniMax-01 uses it: fused projection, norm and output gate."""
    inner = mixer.inner
    return [
        Tensor("self_attn.norm.weight", (inner,), "norm"),
        *linear("self_attn.qkv_proj", 3 * inner, hidden, "mixer"),
        *linear("self_attn.out_proj", hidden, inner, "mixer"),
        *linear("self_attn.output_gate", inner, hidden, "mixer"),
    ]


def _convolution(facts: Facts, name: str, channels: int, kernel: int) -> list[Tensor]:
    weight = Tensor(f"{name}.weight", (channels, 1, kernel), "mixer")
    return [weight, Tensor(f"{name}.bias", (channels,), "mixer")] if facts.flag("conv_bias") else [weight]
