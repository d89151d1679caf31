"""What logits and loss hold at their most, in forward and in backward, by the way the loss is computed.

Sources: transformers 5.24 loss/loss_utils.py (logits raised to fp32, then cross entropy); Liger Kernel
fused_linear_cross_entropy.py; counted from the live tensors of each. Of a compiled loss torch keeps the 16-bit logits
that go in, and two numbers for each token (torch 2.13 torch/_functorch/partitioners.py, counted from its graphs).
"""

from __future__ import annotations

from planner.architecture.amount import ActivationSettings, Amount
from planner.architecture.shape import Architecture

OUTPUT_CHUNKS = 8
"""Chunks of a compiled chunked loss: num_output_chunks, torchtune/modules/loss/ce_chunked_output_loss.py."""


def loss_amounts(architecture: Architecture, settings: ActivationSettings) -> tuple[Amount, Amount]:
    """(forward, backward): beyond everything stored and the head's input."""
    copies = Amount()
    if settings.precision == "autocast":
        copies = Amount(2 * architecture.vocabulary * architecture.hidden)
    by_loss = {"standard": _standard, "chunked": _chunked, "fused": _fused, "kernel": _kernel}[settings.loss]
    forward, backward = by_loss(architecture, settings)
    return forward + copies, backward + copies


def _standard(architecture: Architecture, settings: ActivationSettings) -> tuple[Amount, Amount]:
    """16-bit logits, their fp32 copy and log-probabilities; two fp32 gradients beside the latter in backward.

    Encoders and encoder-decoders skip the fp32 copy, and logits in fp32 are their own. The logits object itself lives
    on when the caller holds the outputs, and as the result of a soft cap; under autocast it is then converted to
    fp32. Autocast holds the fp32 hidden states. Megatron's cross entropy takes exponential and softmax in place:
    16-bit logits and one fp32 copy (megatron-core tensor_parallel/cross_entropy.py). Divided over the vocabulary by
    torch, logits, their fp32 copy, shifted scores and a result in forward, four fp32 copies in backward (torch 2.13
    torch/distributed/tensor/parallel/loss.py).
    """
    rows = architecture.vocabulary
    if settings.element == 2 and settings.kernels == "megatron":
        return Amount(0, 6 * rows), Amount(0, 6 * rows)
    if settings.element == 2 and _raw_logits(architecture):
        return Amount(0, 4 * rows), Amount(0, 6 * rows + (2 * rows if settings.outputs_held else 0))
    if settings.tensor_parallel > 1:
        return Amount(0, 14 * rows), Amount(0, 16 * rows)
    softcap = settings.element * rows if architecture.logit_softcap else 0
    held = settings.stream * rows if settings.outputs_held else 0
    states = 4 * architecture.hidden if settings.precision == "autocast" else 0
    forward = (8 if settings.element == 4 else 10) * rows + softcap + states
    return Amount(0, forward), Amount(0, 12 * rows + held + softcap)


def idle_logits(architecture: Architecture, settings: ActivationSettings) -> Amount:
    """Block of 16-bit logits that torch's cross entropy raises to fp32: freed before backward, and too small for what
    is made then, fp32 gradients of logits and scores.
    """
    raised = settings.loss == "standard" and settings.element == 2 and settings.kernels != "megatron"
    return Amount(0, 2 * architecture.vocabulary if raised and not _raw_logits(architecture) else 0)


def _raw_logits(architecture: Architecture) -> bool:
    """Whether the model hands 16-bit logits to the loss: encoders and encoder-decoders do."""
    towers = {group.tower for group in architecture.layers}
    attention = architecture.layers[-1].kind.attention
    return towers == {"encoder", "decoder"} or (attention is not None and not attention.causal)


def _chunked(architecture: Architecture, settings: ActivationSettings) -> tuple[Amount, Amount]:
    """Chunks of a fixed number of tokens, each recomputed in backward; the head's gradient gathers over them.

    Under torch.compile a chunk is raised to fp32 and reduced in one graph, which keeps its logits as they are; the
    gradient of a chunk's logits, the sum of the head's gradients so far, and the chunk's own stand beside them.
    """
    rows, hidden, element = architecture.vocabulary, architecture.hidden, settings.element
    if settings.kernels == "compiled":
        logits, weights = element * rows, 0 if settings.frozen else 2 * element * rows * hidden
        return Amount(0, logits), Amount(weights, logits + -(-logits // OUTPUT_CHUNKS))
    logits = 12 * rows * settings.loss_chunk_tokens
    gradient = 0 if settings.frozen else 3 * element * rows * hidden
    return Amount(8 * rows * settings.loss_chunk_tokens), Amount(max(logits, gradient), element * hidden)


def _fused(architecture: Architecture, settings: ActivationSettings) -> tuple[Amount, Amount]:
    """Gradients are computed in forward, over chunks of at most twice `tokens x hidden / rows` tokens.

    Alive at once: the gradient of the hidden states, one chunk of logits, the head's gradient in 16 bits with one
    chunk's product and its fp32 copy. A frozen head has two chunks of logits instead.
    """
    rows, hidden, element = architecture.vocabulary, architecture.hidden, settings.element
    if settings.frozen:
        return Amount(0, 5 * element * hidden), Amount(0, element * hidden)
    return Amount(8 * rows * hidden, 3 * element * hidden), Amount(element * rows * hidden, element * hidden)


def _kernel(architecture: Architecture, settings: ActivationSettings) -> tuple[Amount, Amount]:
    """One kernel reads the logits as they are and writes their gradient (flash-attn losses/cross_entropy.py)."""
    logits = settings.element * architecture.vocabulary
    return Amount(0, logits), Amount(0, 2 * logits)
