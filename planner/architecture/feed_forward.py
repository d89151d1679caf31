"""Feed-forward blocks: dense, and mixtures of experts with routed and shared experts."""

from __future__ import annotations

from planner.architecture.facts import Facts
from planner.architecture.shape import FeedForward, Tensor
from planner.architecture.tensors import linear
from planner.units import shown

ACTIVATIONS = {
    "silu": "silu", "swish": "silu", "swiglu": "silu", "gelu": "gelu", "gelu_pytorch_tanh": "gelu",
    "gelu_new": "gelu_python", "gelu_fast": "gelu_python", "gelu_python": "gelu_python", "quick_gelu": "gelu",
    "relu": "relu", "relu2": "relu2", "relu_squared": "relu2", "xielu": "xielu",
    "swiglu_clamped": "swiglu_clamped",
}


def dense_of(facts: Facts, width_fact: str = "width") -> FeedForward:
    """Dense feed-forward block of the model."""
    factor = facts.real("width_factor", 0.0)
    derived = int(factor * facts.size("hidden")) if factor else None
    return FeedForward(width=facts.size(width_fact, derived), gated=facts.flag("gated"), activation=_activation(facts))


def experts_of(facts: Facts) -> FeedForward:
    """Mixture of experts of the model."""
    width = facts.size("expert_width", facts.number("width", 0) or None)
    shared = facts.number("shared_width", facts.number("shared_experts", 0) * width)
    experts = facts.size("experts")
    return FeedForward(
        width=width,
        gated=facts.flag("gated"),
        activation=_activation(facts),
        experts=experts,
        experts_per_token=_experts_per_token(facts, experts),
        shared_width=shared,
        shared_gate=bool(shared) and facts.flag("shared_gate"),
        router_fp32_input=facts.flag("router_fp32_input"),
        routing_weights_fp32=facts.flag("routing_weights_fp32", True),
        shared_first=bool(shared) and facts.flag("shared_first"),
        every_expert=facts.flag("every_expert"),
    )


def feed_forward_tensors(facts: Facts, block: FeedForward, hidden: int) -> list[Tensor]:
    """Every parameter tensor of one feed-forward block."""
    if not block.experts:
        return _dense_tensors(facts, block, hidden)
    return [*_router(facts, block, hidden), *_expert_tensors(facts, block, hidden), *_shared(facts, block, hidden)]


def _activation(facts: Facts) -> str:
    word = facts.word("activation", "silu")
    if word not in ACTIVATIONS:
        raise facts.wrong("activation", f"unknown activation {shown(word)}", "one of " + ", ".join(sorted(ACTIVATIONS)))
    return ACTIVATIONS[word]


def _experts_per_token(facts: Facts, experts: int) -> int:
    chosen = facts.size("experts_per_token")
    if chosen > experts:
        raise facts.wrong("experts_per_token", f"{chosen} experts per token of only {experts} experts",
                          f"at most {experts}")
    return chosen


def _dense_tensors(facts: Facts, block: FeedForward, hidden: int) -> list[Tensor]:
    names, width = facts.names, block.width
    bias, rows_in = facts.flag("mlp_bias"), facts.flag("rows_in")
    down = linear(names["down"], hidden, width, "mlp", bias, rows_in)
    if block.gated and facts.flag("fused_gate_up"):
        return [*linear(names["gate_up"], 2 * width, hidden, "mlp", bias), *down, *_activation_tensors(facts)]
    gate = linear(names["gate"], width, hidden, "mlp", bias) if block.gated else []
    up = linear(names["up"], width, hidden, "mlp", bias, rows_in)
    return [*gate, *up, *down, *_activation_tensors(facts)]


def _activation_tensors(facts: Facts) -> list[Tensor]:
    """Learned scalars of the activation, where the family has any."""
    names = facts.names.get("activation_scalars", ())
    return [Tensor(name, (1,), "mlp") for name in names]


def _router(facts: Facts, block: FeedForward, hidden: int) -> list[Tensor]:
    name = facts.names["router"]
    weights = linear(name, block.experts, hidden, "router", facts.flag("router_bias"))
    correction = facts.word("router_correction")
    if not correction:
        return weights
    shape = (1, block.experts) if facts.flag("router_correction_row") else (block.experts,)
    return [*weights, Tensor(f"{name}.{correction}", shape, "router", trainable=False)]


def _expert_tensors(facts: Facts, block: FeedForward, hidden: int) -> list[Tensor]:
    """Experts of one layer as stacked tensors, as the model code holds them."""
    name, experts, width = facts.names["experts"], block.experts, block.width
    if facts.flag("experts_flat"):
        return [Tensor(f"{name}.{part}", (experts * width, hidden), "expert") for part in ("w1", "v1", "w2")]
    inner = width * (2 if block.gated else 1)
    first, rows_in = "gate_up_proj" if block.gated else "up_proj", facts.flag("experts_rows_in")
    tensors = [
        Tensor(f"{name}.{first}", (experts, hidden, inner) if rows_in else (experts, inner, hidden), "expert"),
        Tensor(f"{name}.down_proj", (experts, width, hidden) if rows_in else (experts, hidden, width), "expert"),
    ]
    if facts.flag("expert_bias"):
        tensors.append(Tensor(f"{name}.{first}_bias", (experts, inner), "expert"))
        tensors.append(Tensor(f"{name}.down_proj_bias", (experts, hidden), "expert"))
    return tensors


def _shared(facts: Facts, block: FeedForward, hidden: int) -> list[Tensor]:
    if not block.shared_width:
        return []
    name, width, bias = facts.names["shared"], block.shared_width, facts.flag("shared_bias")
    if facts.flag("shared_fused"):
        inputs = linear(f"{name}.input_linear", 2 * width, hidden, "mlp")
        return [*inputs, *linear(f"{name}.output_linear", hidden, width, "mlp")]
    gate = linear(f"{name}.gate_proj", width, hidden, "mlp", bias) if block.gated else []
    up = linear(f"{name}.up_proj", width, hidden, "mlp", bias)
    down = linear(f"{name}.down_proj", hidden, width, "mlp", bias)
    mix = linear(facts.names["shared_gate"], 1, hidden, "mlp") if block.shared_gate else []
    return [*gate, *up, *down, *mix]
