"""Bytes that grow with the tokens of a micro-batch, and the settings of a job that decide what a layer keeps."""

from __future__ import annotations

from dataclasses import dataclass

ALL_LINEAR = ("q", "k", "v", "o", "gate", "up", "down")


@dataclass(frozen=True)
class Amount:
    """Bytes as `constant + per_token * tokens`, where tokens = micro-batch size x sequence length.

    `constant` does not grow with the micro-batch size: tables with one row per position and 16-bit copies of weights.
    What grows with the square of the sequence is folded into `per_token` at the sequence length of the settings.
    """

    constant: int = 0
    per_token: int = 0

    def at(self, tokens: int) -> int:
        """Bytes for `tokens` tokens."""
        return self.constant + self.per_token * tokens

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.constant + other.constant, self.per_token + other.per_token)

    def __sub__(self, other: Amount) -> Amount:
        return Amount(self.constant - other.constant, self.per_token - other.per_token)

    def scaled(self, count: int) -> Amount:
        """This amount `count` times."""
        return Amount(self.constant * count, self.per_token * count)

    def divided(self, parts: int) -> Amount:
        """One of `parts` equal shares, rounded up once."""
        return Amount(-(-self.constant // parts), -(-self.per_token // parts))


def total(amounts: list[Amount]) -> Amount:
    """Sum of `amounts`."""
    return sum(amounts, Amount())


def largest(amounts: list[Amount], tokens: int) -> Amount:
    """The amount that is largest at `tokens` tokens; the first of equals."""
    return max(amounts, key=lambda amount: amount.at(tokens))


@dataclass(frozen=True)
class ActivationSettings:
    """What the training job says about activations.

    `precision`: `bf16`, `fp16`, `fp32`, or `autocast` (fp32 weights, 16-bit matrix products). `attention`: `flash`
    (also SDPA without a mask), `sdpa` (SDPA with an explicit mask that all layers share: keys and values are
    repeated), `sdpa_masked` (a padded batch: besides, each layer keeps a 16-bit copy of the mask) or `eager`.
    `loss`: `standard`, `chunked` (recomputed over `loss_chunk_tokens` tokens at a time; compiled, not recomputed),
    `fused` (Liger) or `kernel` (one kernel or one compiled graph over 16-bit logits).
    `kernels`: `huggingface`, `liger`, `compiled` (torch.compile of each layer, which keeps no results of elementwise
    operations) or `megatron`. `experts`: `grouped` (one matrix product over all experts' rows) or
    `loop` (one expert after the other). `outputs_held`: the training loop keeps the model's output
    object, and with it the logits, during backward. `method`: `full`, `lora`, `qlora` or `dora`; `lora_targets` names
    the adapted projections out of q, k, v, o, gate, up, down. `adapter_bytes`: bytes per adapter parameter (PEFT keeps
    them in fp32 unless told otherwise). `dropout`: whether the model's dropout is active;
    `dropout_mask_bytes`: 1 on CUDA, 2 on CPU. `tensor_parallel`, `sequence_parallel`: Megatron's division.
    `attention_remade`: selective recomputation makes attention again too. `inputs_kept`: linear layers of a frozen base
    keep their inputs, as if their weights were trained. `narrow_inputs`: they keep them in fp8, one byte an element
    (Transformer Engine 2.11 pytorch/module/linear.py, layernorm_linear.py: the transpose alone until backward).
    `mlp_tiles`: into how many parts of its tokens a dense feed-forward block goes, one after the other. `modules`: what
    a kept layer makes again in backward, see `planner.architecture.modules`.
    """

    sequence_length: int
    precision: str = "bf16"
    attention: str = "flash"
    loss: str = "standard"
    loss_chunk_tokens: int = 1024
    kernels: str = "huggingface"
    experts: str = "grouped"
    outputs_held: bool = False
    method: str = "full"
    lora_rank: int = 16
    lora_targets: tuple[str, ...] = ALL_LINEAR
    lora_dropout: float = 0.0
    adapter_bytes: int = 4
    dropout: bool = True
    dropout_mask_bytes: int = 1
    tensor_parallel: int = 1
    sequence_parallel: bool = True
    attention_remade: bool = False
    inputs_kept: bool = False
    narrow_inputs: bool = False
    mlp_tiles: int = 1
    modules: tuple[str, ...] = ()

    @property
    def element(self) -> int:
        """Bytes per element of what matrix products read and write."""
        return 4 if self.precision == "fp32" else 2

    @property
    def kept_element(self) -> int:
        """Bytes per element of the inputs that linear layers keep."""
        return 1 if self.narrow_inputs else self.element

    @property
    def stream(self) -> int:
        """Bytes per element of the residual stream."""
        return 4 if self.precision in ("fp32", "autocast") else 2

    @property
    def stream_parts(self) -> int:
        """Ranks over which the residual stream is divided."""
        return self.tensor_parallel if self.sequence_parallel else 1

    @property
    def frozen(self) -> bool:
        """Whether the base weights take no gradient."""
        return self.method != "full"

    @property
    def private_bytes(self) -> int:
        """Bytes per element of the input copy that each adapter keeps for itself; 0 when adapters share the input.

        An adapter in fp32 keeps an fp32 cast of a 16-bit input; an adapter with dropout keeps its output and mask.
        """
        dropped = self.dropout and self.lora_dropout > 0
        cast = self.adapter_bytes > self.element and self.precision != "autocast"
        if not self.frozen or not (dropped or cast):
            return 0
        return max(self.adapter_bytes if cast else self.element, self.element) + dropped * self.dropout_mask_bytes

    def adapted(self, *projections: str) -> int:
        """How many of `projections` carry an adapter; 0 when nothing is adapted."""
        return sum(name in self.lora_targets for name in projections) if self.frozen else 0

    def input_bytes(self, projections: tuple[str, ...], fused: bool = False) -> int:
        """Bytes per element that linear layers keep of an input nobody else keeps.

        One copy is shared, except under autocast (one 16-bit cast for each) and by adapters with copies of their own.
        """
        count = 1 if fused else len(projections)
        whole = self.kept_element * (count if self.precision == "autocast" else 1)
        if not self.frozen:
            return whole
        adapters, base = min(self.adapted(*projections), count), whole if self.inputs_kept else 0
        shared = max(base, self.element * min(adapters, 1))
        return base + adapters * self.private_bytes if self.private_bytes else shared

    def adapter_outputs(self, *projections: str) -> int:
        """Bytes per token of the rank-wide tensors between an adapter's two matrices."""
        wide = self.adapter_bytes if self.precision != "autocast" else self.element
        return self.adapted(*projections) * self.lora_rank * wide
