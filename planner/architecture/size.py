"""A model known only by its parameter count and its number of layers: a Llama-like shape of exactly that size."""

from __future__ import annotations

from dataclasses import replace
from math import lcm

from planner.architecture.importer import architecture_from_config
from planner.architecture.shape import Architecture, Tensor
from planner.errors import InputError

HEAD_DIM = 128
SMALL_HEAD_DIM = 64
VOCABULARY = 32000
WIDTH_RATIO = 8 / 3
WIDTH_STEP = 8
LARGEST_HIDDEN = 1 << 17
REST = "rest"  # the tensor of what such a shape does not hold


def architecture_from_size(
    parameters: int,
    layers: int,
    hidden: int | None = None,
    vocabulary: int | None = None,
    heads: int | None = None,
) -> Architecture:
    """Llama-like decoder with exactly `parameters` parameters in `layers` layers.

    The feed-forward width takes up what attention, norms and embeddings leave; what no width can take up is counted
    as one more tensor outside the layers. `assumptions` states every size that was not given. Raises InputError when
    no such shape exists.
    """
    for fact, value in (("parameters", parameters), ("layers", layers)):
        _require_positive(fact, value)
    rows = VOCABULARY if vocabulary is None else _require_positive("vocabulary", vocabulary)
    hidden_width = _hidden(parameters, layers, rows, heads) if hidden is None else _require_positive("hidden", hidden)
    head_count = _heads(hidden_width) if heads is None else _require_positive("heads", heads)
    width = _width(parameters, layers, hidden_width, rows)
    if hidden_width % head_count:
        raise InputError(f"{head_count} heads do not divide the hidden width {hidden_width}", path="heads",
                         expected="a divisor of it")
    config = {
        "model_type": "llama", "hidden_size": hidden_width, "num_hidden_layers": layers, "vocab_size": rows,
        "num_attention_heads": head_count, "intermediate_size": width,
    }
    return _completed(architecture_from_config(config), parameters, layers)


def _require_positive(fact: str, value: int) -> int:
    if value < 1:
        raise InputError(f"{value} is not valid", path=fact, expected="a whole number, 1 or more")
    return value


def _outside_and_attention(layers: int, hidden: int, vocabulary: int) -> int:
    """Parameters without any feed-forward block: per layer 4h^2 + 2h, and 2Vh + h around them."""
    return layers * (4 * hidden * hidden + 2 * hidden) + 2 * vocabulary * hidden + hidden


def _total(layers: int, hidden: int, vocabulary: int) -> float:
    return _outside_and_attention(layers, hidden, vocabulary) + layers * 3 * WIDTH_RATIO * hidden * hidden


def _hidden(parameters: int, layers: int, vocabulary: int, heads: int | None) -> int:
    """Round hidden width whose usual shape (feed-forward 8/3 as wide) comes nearest to the parameter count."""
    step = lcm(SMALL_HEAD_DIM, heads or 1)
    widths = range(step, max(LARGEST_HIDDEN, 2 * step) + 1, step)
    candidates = [width for width in widths if heads or _is_round(width)]
    return min(candidates, key=lambda hidden: abs(_total(layers, hidden, vocabulary) - parameters))


def _is_round(width: int) -> bool:
    """Whether a width has at most four binary digits before its zeros, as published models have."""
    return width % max(SMALL_HEAD_DIM, 1 << max(width.bit_length() - 4, 0)) == 0


def _heads(hidden: int) -> int:
    return next((hidden // dim for dim in (HEAD_DIM, SMALL_HEAD_DIM) if hidden % dim == 0 and hidden >= 8 * dim),
                hidden // SMALL_HEAD_DIM if hidden % SMALL_HEAD_DIM == 0 else 1)


def _width(parameters: int, layers: int, hidden: int, vocabulary: int) -> int:
    left = parameters - _outside_and_attention(layers, hidden, vocabulary)
    width = left // (3 * hidden * layers)
    if width < 1:
        raise InputError(
            f"{parameters:,} parameters are too few for {layers} layers of hidden width {hidden} and a vocabulary of "
            f"{vocabulary:,}", path="parameters",
            expected=f"at least {parameters - left + 3 * hidden * layers:,}",
            hint="give fewer layers or a smaller vocabulary",
        )
    return width - width % WIDTH_STEP if width >= WIDTH_STEP else width


def _completed(shape: Architecture, parameters: int, layers: int) -> Architecture:
    rest = parameters - shape.parameters
    kind = shape.layers[0].kind
    width = kind.feed_forward.width if kind.feed_forward else 0
    heads = kind.attention.heads if kind.attention else 0
    note = (
        f"only {parameters:,} parameters and {layers} layers are known: a Llama-like shape with hidden width "
        f"{shape.hidden}, {heads} heads, gated feed-forward of width {width}, vocabulary {shape.vocabulary:,} "
        "with separate input and output embeddings is assumed"
    )
    if rest:
        note += f"; {rest:,} parameters no such shape holds are counted as one more tensor"
    outside = (*shape.outside, Tensor(REST, (rest,), "other")) if rest else shape.outside
    return replace(shape, name=f"{parameters:,} parameters", outside=outside, assumptions=(note,))
