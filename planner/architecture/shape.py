"""What a model is made of: layer kinds with their tensors and traits, and what stands outside the layers.

Pure data. Numbers are counts (heads, widths, parameters), never bytes. A *trait* is a property of the model code
that a configuration file does not state (for example which norm keeps an fp32 copy); traits come from
`catalogs/families.yaml`, one entry per `model_type`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod


@dataclass(frozen=True)
class Tensor:
    """One parameter tensor. `role`: embedding, positions, head, norm, attention, mlp, expert, router, mixer, other."""

    name: str
    shape: tuple[int, ...]
    role: str
    trainable: bool = True

    @property
    def elements(self) -> int:
        """Number of parameters."""
        return prod(self.shape)


@dataclass(frozen=True)
class Attention:
    """Softmax attention of one layer.

    `kind` is `gqa` (also multi-head and multi-query) or `mla`. `rotary_dim` is the rotated part of a head (0: no
    rotary embedding). `qk_norm` is `none`, `per_head` or `full`. `window` is a sliding window in tokens (0: none).
    For `mla`: `query_latent` (0: none), `key_value_latent`, `nope_dim`, `rotary_dim`, `value_dim`.

    Traits of the model code: `qk_norm_fp32` and `qk_norm_offset` as `norm` and `norm_offset` of a layer;
    `softmax_fp32`: written-out scores are raised to fp32; `joined_rotary`: rotated and unrotated parts of a head are
    joined, even when the latter is empty; `rotary_interleaved`: the layer itself repeats the tables of cosines and
    sines; `rotary_fp32`: queries and keys are rotated in fp32; `split_copies`: queries, keys and values are copied out
    of a fused projection, keys and values for every query head unless there is one of each (Falcon); `shared_keys`: a
    single key and value head goes to the kernel as it is, for all query heads; `alibi`: a bias that grows with the
    distance is added to the scores; `qk_norm_native`: the norm over queries and keys is a native LayerNorm.
    """

    heads: int
    kv_heads: int
    head_dim: int
    kind: str = "gqa"
    rotary_dim: int = 0
    fused_qkv: bool = False
    qk_norm: str = "none"
    window: int = 0
    value_dim: int = 0
    query_latent: int = 0
    key_value_latent: int = 0
    nope_dim: int = 0
    cross: bool = False
    causal: bool = True
    softcap: bool = False
    qk_norm_fp32: bool = False
    qk_norm_offset: bool = False
    softmax_fp32: bool = True
    joined_rotary: bool = False
    rotary_interleaved: bool = False
    rotary_fp32: bool = False
    split_copies: bool = False
    alibi: bool = False
    shared_keys: bool = False
    qk_norm_native: bool = False


@dataclass(frozen=True)
class Recurrence:
    """A recurrent mixer: `kind` is `mamba`, `mamba2`, `gated_delta`, `short_conv` (LFM2) or `lightning` (MiniMax)."""

    kind: str
    inner: int
    state: int
    conv_kernel: int
    heads: int = 0
    groups: int = 1
    rank: int = 0
    key_dim: int = 0
    value_dim: int = 0


@dataclass(frozen=True)
class FeedForward:
    """Dense or mixture-of-experts feed-forward block.

    `activation` is `silu`, `gelu` (one kernel), `gelu_python` (tanh form written out), `relu`, `relu2`, `xielu`
    (Apertus) or `swiglu_clamped` (both branches of GPT-OSS).
    Dense blocks have `experts == 0`. With experts, `width` is the width of one expert, `shared_width` the total width
    of the shared experts (0: none). Traits of the model code: `router_fp32_input`, `routing_weights_fp32`;
    `shared_first`: the shared experts run before the routed ones; `every_expert`: every expert runs on every token,
    with an input of zeros where it is not chosen (Llama 4).
    """

    width: int
    gated: bool
    activation: str = "silu"
    experts: int = 0
    experts_per_token: int = 0
    shared_width: int = 0
    shared_gate: bool = False
    shared_first: bool = False
    every_expert: bool = False
    router_fp32_input: bool = False
    routing_weights_fp32: bool = True


@dataclass(frozen=True)
class LayerKind:
    """One kind of layer and everything that layers of this kind share.

    `norm` is `rms` (Llama style: fp32 copy, 16-bit product), `rms_input` (T5: as `rms`, and the 16-bit input is kept
    as well), `rms_fp32` (Gemma style: fp32 product), `layer_norm` (native kernel), `layer_norm_fp32` (Cohere style) or
    `layer_norm_cast` (native kernel on an fp32 copy, OLMo). `norms` is the number of hidden-wide norms in the layer;
    `parallel` means that attention and feed-forward read the same norm and add to the stream together,
    `attention_first` that the attention is then done before the feed-forward block's norm is read; `post_norm` that a
    sub-block's output is normalised (Gemma 2 and 3, OLMo 2) or, for BERT-like layers, the sum is.
    """

    name: str
    tensors: tuple[Tensor, ...]
    attention: Attention | None = None
    recurrence: Recurrence | None = None
    feed_forward: FeedForward | None = None
    cross_attention: Attention | None = None
    norm: str = "rms"
    norms: int = 2
    norm_offset: bool = False
    parallel: bool = False
    post_norm: bool = False
    residual_dropout: float = 0.0
    attention_dropout: float = 0.0
    attention_first: bool = False

    @property
    def parameters(self) -> int:
        """Number of parameters of one layer of this kind."""
        return sum(tensor.elements for tensor in self.tensors)


@dataclass(frozen=True)
class LayerGroup:
    """`count` consecutive layers of one kind. `tower` is `text`, `encoder`, `decoder` or `vision`."""

    kind: LayerKind
    count: int
    tower: str = "text"


@dataclass(frozen=True)
class Architecture:
    """A model: its layers in order, and the tensors outside them (embeddings, final norm, head, projectors).

    `vocabulary` and `hidden` are those of the text model. `tied` means that input and output embedding are one
    tensor (then it stands once in `outside`). `logit_softcap` and `logit_scale` are traits of the head.
    """

    name: str
    family: str
    hidden: int
    vocabulary: int
    layers: tuple[LayerGroup, ...]
    outside: tuple[Tensor, ...]
    tied: bool
    maximum_positions: int = 0
    logit_softcap: bool = False
    logit_scale: bool = False
    embedding_scale: bool = False
    implementation: str = "huggingface"
    assumptions: tuple[str, ...] = field(default=())

    @property
    def layer_count(self) -> int:
        """Number of layers of the text model (encoder and decoder together for encoder-decoder models)."""
        return sum(group.count for group in self.layers if group.tower != "vision")

    @property
    def parameters(self) -> int:
        """Number of unique parameters, tied tensors once."""
        inside = sum(group.kind.parameters * group.count for group in self.layers)
        return inside + sum(tensor.elements for tensor in self.outside)

    @property
    def largest_tensor(self) -> int:
        """Parameters of the largest single tensor."""
        kinds = (tensor.elements for group in self.layers for tensor in group.kind.tensors)
        return max([*kinds, *(tensor.elements for tensor in self.outside)])

    @property
    def largest_layer(self) -> int:
        """Parameters of the largest layer."""
        return max(group.kind.parameters for group in self.layers)
