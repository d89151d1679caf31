"""Computes the loss of a causal language model without holding all of its logits."""

from __future__ import annotations

from types import MethodType
from typing import TYPE_CHECKING, Any

from planner.errors import InputError

if TYPE_CHECKING:
    import torch

CHUNK_TOKENS = 1024
# Attributes of configurations that change logits between the head and the loss.
CHANGES_LOGITS = ("final_logit_softcapping", "logit_scale", "logits_scaling", "lm_head_multiplier")


def chunk_the_loss(model: torch.nn.Module, tokens: int = CHUNK_TOKENS) -> None:
    """Replaces the forward pass with labels: logits of `tokens` tokens at a time, made again in backward.

    The output then has a loss and no logits; without labels the forward pass is the model's own. Raises InputError for
    a model that is no plain causal language model.
    """
    _require_plain(model)
    plain = getattr(type(model), "forward")  # noqa: B009 (the class's, also when this is called again)

    def forward(
        self: Any, input_ids: Any = None, labels: Any = None, num_items_in_batch: Any = None, **rest: Any
    ) -> Any:
        from transformers.modeling_outputs import CausalLMOutputWithPast

        if labels is None:
            return plain(self, input_ids=input_ids, **rest)
        rest.pop("logits_to_keep", None)
        hidden = self.get_decoder()(input_ids=input_ids, **rest).last_hidden_state
        loss = chunked_loss(self.get_output_embeddings(), hidden, labels, tokens, num_items_in_batch)
        return CausalLMOutputWithPast(loss=loss)

    model.forward = MethodType(forward, model)


def chunked_loss(head: Any, hidden: torch.Tensor, labels: torch.Tensor, tokens: int, items: Any = None) -> torch.Tensor:
    """Cross entropy of the next token in fp32, averaged over labels that are not -100, or divided by `items`."""
    import torch
    from torch.utils.checkpoint import checkpoint

    states = hidden[..., :-1, :].reshape(-1, hidden.shape[-1])
    targets = labels[..., 1:].reshape(-1).to(states.device)
    total = torch.zeros((), dtype=torch.float32, device=states.device)
    for first in range(0, len(states), tokens):
        part, wanted = states[first : first + tokens], targets[first : first + tokens]
        total = total + checkpoint(_summed, head, part, wanted, use_reentrant=False)
    return total / ((targets != -100).sum() if items is None else items)


def _summed(head: Any, states: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The sum over one chunk."""
    import torch

    return torch.nn.functional.cross_entropy(head(states).float(), targets, ignore_index=-100, reduction="sum")


def fuse_the_loss(model: torch.nn.Module) -> None:
    """Puts Liger's fused linear cross entropy on the model. Raises InputError where liger_kernel is not installed."""
    try:
        from liger_kernel.transformers import (  # type: ignore[import-not-found, unused-ignore]
            _apply_liger_kernel_to_instance,
        )
    except ImportError:
        raise InputError(
            "the fused loss needs liger_kernel, which is not installed", path="training.loss",
            expected="pip install liger-kernel", hint="the chunked loss needs nothing",
        ) from None  # fmt: skip
    only = {"rope": False, "rms_norm": False, "swiglu": False, "fused_linear_cross_entropy": True}
    _apply_liger_kernel_to_instance(model=model, **only)


def _require_plain(model: Any) -> None:
    """A head that makes logits, and nothing between it and the loss."""
    named = [name for name in CHANGES_LOGITS if getattr(model.config, name, None) not in (None, 1, 1.0, False)]
    headless = getattr(model, "get_output_embeddings", lambda: None)() is None
    if headless or named or getattr(model.config, "output_router_logits", False):
        reason = f"its configuration has {named[0]}" if named else "it has no plain output head"
        raise InputError(
            f"the loss of {type(model).__name__} cannot be computed in chunks: {reason}", path="training.loss",
            hint="loss: standard",
        )  # fmt: skip
