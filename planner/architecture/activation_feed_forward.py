"""What dense and mixture-of-experts blocks keep for backward, and what they need while they run."""

from __future__ import annotations

from planner.architecture.activation_norm import reads_stream
from planner.architecture.amount import ActivationSettings, Amount
from planner.architecture.shape import FeedForward, LayerKind

INPUTS = ("gate", "up")


def feed_forward_stored(block: FeedForward, hidden: int, settings: ActivationSettings) -> Amount:
    """Stored set of one feed-forward block, the copies its matrices keep of its input included."""
    if block.experts:
        return _experts_stored(block, hidden, settings)
    inputs = settings.input_bytes(INPUTS if block.gated else ("up",), fused=not block.gated) * hidden
    if settings.mlp_tiles > 1:
        return Amount(0, settings.element * hidden)
    return Amount(0, inputs + _inner(block, block.width, settings))


def _inner(block: FeedForward, width: int, settings: ActivationSettings) -> int:
    """Bytes per token of the tensors of the inner width, and of what adapters keep.

    The activation keeps its own tensors, the gate's branch the other factor and the product. What only the last
    matrix reads (the product, or the result of an activation that does not need it) stays if that matrix is trained.
    """
    element, down = settings.element, settings.input_bytes(("down",))
    adapters = settings.adapter_outputs(*(INPUTS if block.gated else ("up",)), "down")
    if settings.kernels != "huggingface" and block.gated:
        return (2 * element + down) * width + adapters
    activation = _activation(block, settings)
    if block.gated:
        return (activation + element + down) * width + adapters
    needed = element if block.activation == "relu" else 0
    last = needed + down if settings.private_bytes else max(needed, down)
    return (activation - element + last) * width + adapters


def _activation(block: FeedForward, settings: ActivationSettings) -> int:
    """Bytes per inner element that the activation keeps, its result included."""
    element = settings.element
    kept = {"relu": element, "relu2": 2 * element, "gelu_python": 5 * element, "swiglu_clamped": 5 * element}
    return {**kept, "xielu": 5 * element + 1}.get(block.activation, 2 * element)


def _experts_stored(block: FeedForward, hidden: int, settings: ActivationSettings) -> Amount:
    """Matrix products over the routed tokens, the router, and the shared expert.

    A loop over the experts indexes rows anew for each, which keeps one more row per routed token, and does without
    the sorted order (8 bytes) of the grouped product.
    """
    element, routed = settings.element, routed_rows(block)
    tokens = routed * ((element + settings.kept_element) * hidden + _expert_inner(block, settings) * block.width)
    weights = 8 * routed + 4 if block.routing_weights_fp32 else element * routed
    order = 32 * routed
    if settings.experts == "loop":
        tokens, order = tokens + routed * element * hidden, 24 * routed
    router = order + 4 * block.experts + weights + (4 * hidden if block.router_fp32_input else 0)
    shared = shared_bytes(block, settings)
    gated = element * hidden + element if block.shared_gate else 0
    gated += settings.narrow_inputs * hidden if block.shared_width else 0  # the router reads the wide one
    return Amount(0, settings.element * hidden + tokens + router + shared + gated)


def routed_rows(block: FeedForward) -> int:
    """Expert rows per token."""
    return block.experts if block.every_expert else block.experts_per_token


def shared_bytes(block: FeedForward, settings: ActivationSettings) -> int:
    """Bytes per token of what the shared experts keep beside their input."""
    return _expert_inner(block, settings) * block.shared_width


def _expert_inner(block: FeedForward, settings: ActivationSettings) -> int:
    if settings.kernels != "huggingface" and block.gated:
        return 2 * settings.element + settings.kept_element
    return _activation(block, settings) + (2 * settings.element if block.gated else 0)


def feed_forward_work(
    kind: LayerKind, block: FeedForward, hidden: int, settings: ActivationSettings
) -> tuple[int, int, int, int]:
    """Bytes per token of the four workings of a site (see Work)."""
    if block.experts:
        return _experts_work(block, hidden, settings)
    element, stream, norm = settings.element, settings.stream * hidden, settings.element * hidden
    inner = element * block.width
    if settings.mlp_tiles > 1:
        return _tiled_work(kind, block, hidden, settings)
    replaced = block.activation == "relu" and not block.gated
    forward = inner if replaced else stream + norm
    alone = _alone(kind, block) * inner + stream + _outputs(kind, block) * norm
    backward = _backward(block, settings) * inner + stream
    return forward, alone, backward, backward


def _tiled_work(
    kind: LayerKind, block: FeedForward, hidden: int, settings: ActivationSettings
) -> tuple[int, int, int, int]:
    """One tile's tensors beside the tiles that are done; at the end these and the whole that is joined of them.

    Forward keeps nothing but its input. Backward makes each tile again, all that it keeps included, beside the whole
    gradients of output and input (deepspeed 0.19.8 runtime/sequence_parallel/ulysses_sp.py, TiledMLP).
    """
    inner, tiles = settings.element * block.width, settings.mlp_tiles
    stream, norm = settings.stream * hidden, settings.element * hidden
    running = norm + max(norm, -(-_alone(kind, block) * inner // tiles))
    again = -(-(_inner(block, block.width, settings) + _backward(block, settings) * inner) // tiles)
    backward = again + norm + stream
    return stream + running, stream + _outputs(kind, block) * norm + running, backward, backward


def _alone(kind: LayerKind, block: FeedForward) -> int:
    """Inner-wide tensors alive at once in a forward that stores nothing."""
    if block.gated:
        fused = any(tensor.role == "mlp" and 2 * block.width in tensor.shape for tensor in kind.tensors)
        return 4 if fused else 3
    return 4 if block.activation == "gelu_python" else 2


def _outputs(kind: LayerKind, block: FeedForward) -> int:
    """Norm outputs beside the stream: two of parallel blocks with a norm each, none where that is the stream itself.

    Nor is there one in OPT, whose code gives its name to what follows.
    """
    if reads_stream(kind) or (block.activation == "relu" and not block.gated):
        return 0
    return 2 if kind.parallel and kind.norms > 1 and not kind.attention_first else 1


def _backward(block: FeedForward, settings: ActivationSettings) -> int:
    """Inner-wide gradients beyond what is stored: a kernel that writes over its inputs needs one, a GELU kernel one."""
    if settings.kernels != "huggingface" or (not block.gated and block.activation == "gelu"):
        return 1
    return 2


def _experts_work(block: FeedForward, hidden: int, settings: ActivationSettings) -> tuple[int, int, int, int]:
    """The combination of the routed outputs is the widest moment; fp32 routing weights make it fp32.

    A shared expert without a gate runs after the routed ones: its stored set does not exist yet in forward and is
    gone in backward. A loop does so for one expert's rows at a time (an even share of the tokens).
    """
    element, stream, routed = settings.element, settings.stream * hidden, routed_rows(block)
    if settings.experts == "loop":
        return _loop_work(block, hidden, settings)
    rows = routed * hidden
    wide = 4 if block.routing_weights_fp32 else element
    late = 0 if block.shared_gate or block.shared_first else shared_bytes(block, settings)
    gate = element * hidden if block.shared_gate else 0
    combine = (2 * element + 2 * wide) * rows
    matrices = 4 * element * routed * block.width + element * rows
    alone = max(combine, matrices) + 2 * stream + gate
    recomputed = 3 * wide * rows + stream + gate - late
    backward = recomputed + (element * rows if block.routing_weights_fp32 else 0)
    return 2 * wide * rows + 3 * stream - late, alone, backward, recomputed


def _loop_work(block: FeedForward, hidden: int, settings: ActivationSettings) -> tuple[int, int, int, int]:
    """One expert's rows, and the sum over experts; in backward the sum's gradient and that of each gathered input."""
    element, stream = settings.element, settings.stream * hidden
    share = element * (3 * hidden + 4 * block.width) * routed_rows(block) // block.experts
    backward = 3 * element * hidden + stream + share
    return 3 * stream, 3 * stream + share, backward, backward
