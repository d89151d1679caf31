"""One layer as a list of sites in forward order: what each keeps for backward and what it needs while it runs.

Stored sets and working sets are those of the Hugging Face model code (transformers 5.24 with torch 2.13), counted
from the tensors that autograd saves; Liger's and Megatron's follow their published sources. All figures are bytes
per token (`constant` in Amount: bytes whatever the micro-batch).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from planner.architecture.activation_feed_forward import feed_forward_stored, feed_forward_work
from planner.architecture.activation_mixer import attention_stored, attention_work, recurrence_stored, recurrence_work
from planner.architecture.activation_norm import norm_backward, norm_stored, reads_stream
from planner.architecture.amount import ActivationSettings, Amount
from planner.architecture.modules import discarded
from planner.architecture.shape import LayerKind


@dataclass(frozen=True)
class Work:
    """Bytes per token that a site needs besides what is stored, the residual stream or its gradient included.

    `forward`: beyond everything stored up to and including the site. `alone`: everything alive while the site runs
    with nothing stored (a checkpointed layer's first forward). `backward`: beyond everything stored up to and
    including the site, less what the site has freed by then. `recomputed`: the same after a recomputation.
    """

    forward: int = 0
    alone: int = 0
    backward: int = 0
    recomputed: int = 0


@dataclass(frozen=True)
class Site:
    """One step of a layer: `norm`, `attention`, `recurrence`, `feed_forward` or `end`."""

    name: str
    stored: Amount
    work: Work


def layer_sites(kind: LayerKind, hidden: int, settings: ActivationSettings) -> tuple[Site, ...]:
    """Sites of a layer in forward order."""
    blocks = _blocks(kind, hidden, settings)
    if kind.parallel:
        norms = [_norm(kind, hidden, settings, stream=index == 0) for index in range(kind.norms)]
        ordered = [*norms, *_sharing(kind, hidden, settings, blocks)]
    else:
        ordered = [site for index, block in enumerate(blocks) for site in _normed(kind, hidden, settings, index, block)]
    mask = _dropout(kind, hidden, settings)
    sites = (_split(site, hidden, settings, mask) for site in (*ordered, _end(kind, hidden, settings)))
    return tuple(_made_again(site, kind, hidden, settings) for site in sites) if settings.modules else tuple(sites)


def _made_again(site: Site, kind: LayerKind, hidden: int, settings: ActivationSettings) -> Site:
    """A site without what modules make again: that exists while the site runs, forward and backward, not between."""
    size, work = discarded(site.name, kind, hidden, settings), site.work
    running = replace(work, forward=work.forward + size, backward=work.backward + size)
    return replace(site, stored=site.stored - Amount(0, size), work=running)


def _split(site: Site, hidden: int, settings: ActivationSettings, mask: Amount) -> Site:
    """One rank's share under tensor parallelism (Korthikanti et al. 2022, arXiv:2205.05198 sections 4.1 and 4.2).

    Norms, what they write and the masks of the stream's dropout stay whole unless the sequence is divided as well; then
    a block gathers its input.
    """
    parts = settings.tensor_parallel
    if parts == 1:
        return site
    read, stream = Amount(0, settings.element * hidden), 2 * settings.stream * hidden
    kept = {"norm": site.stored, "end": Amount(), "recurrence": read}.get(site.name, read + mask)
    whole = Amount() if settings.sequence_parallel else kept
    work, gathered = (0, read.per_token) if settings.sequence_parallel else (stream, 0)
    figures = (site.work.forward, site.work.alone, site.work.backward, site.work.recomputed)
    shares = (min(figure, work) - (min(figure, work) - figure) // parts + gathered for figure in figures)
    return replace(site, stored=whole + (site.stored - whole).divided(parts), work=Work(*shares))


def _sharing(kind: LayerKind, hidden: int, settings: ActivationSettings, blocks: list[Site]) -> list[Site]:
    """Blocks that read one norm keep one copy of its output between them, unless each makes its own."""
    own = settings.precision == "autocast" or settings.private_bytes
    if kind.norms > 1 or own or len(blocks) < 2:
        return blocks
    first, *others = blocks
    shared = Amount(0, settings.input_bytes(("q", "k", "v", "gate", "up")) * hidden)
    return [first, *(replace(site, stored=site.stored - shared) for site in others)]


def _normed(kind: LayerKind, hidden: int, settings: ActivationSettings, index: int, block: Site) -> list[Site]:
    """A block with its norms: before it, after it, or both; a block beyond the number of norms has none."""
    norm = _norm(kind, hidden, settings, stream=True)
    if reads_stream(kind):
        return [block, norm]
    if kind.post_norm:
        return [norm, block, _norm(kind, hidden, settings, stream=True)]
    return [norm, block] if index < kind.norms else [block]


def _blocks(kind: LayerKind, hidden: int, settings: ActivationSettings) -> list[Site]:
    sites = []
    for attention in (kind.attention, kind.cross_attention):
        if attention is not None:
            stored = attention_stored(attention, hidden, settings) + _dropout(kind, hidden, settings)
            stored += _attention_dropout(kind, attention.heads, settings)
            sites.append(Site("attention", stored, Work(*attention_work(attention, hidden, settings))))
    if kind.recurrence is not None:
        stored = recurrence_stored(kind.recurrence, hidden, settings)
        sites.append(Site("recurrence", stored, Work(*recurrence_work(kind.recurrence, hidden, settings))))
    if kind.feed_forward is not None:
        stored = feed_forward_stored(kind.feed_forward, hidden, settings) + _dropout(kind, hidden, settings)
        sites.append(Site("feed_forward", stored, Work(*feed_forward_work(kind, kind.feed_forward, hidden, settings))))
    return sites


def _norm(kind: LayerKind, hidden: int, settings: ActivationSettings, stream: bool) -> Site:
    stored = norm_stored(kind.norm, kind.norm_offset, hidden, settings, stream)
    needed = norm_backward(kind.norm, settings) * hidden
    return Site("norm", stored, Work(backward=needed, recomputed=needed))


def _dropout(kind: LayerKind, hidden: int, settings: ActivationSettings) -> Amount:
    """Mask of the dropout on a block's output."""
    active = settings.dropout and kind.residual_dropout > 0
    return Amount(0, settings.dropout_mask_bytes * hidden if active else 0)


def _attention_dropout(kind: LayerKind, heads: int, settings: ActivationSettings) -> Amount:
    """Mask and product of the dropout on written-out probabilities; flash attention remakes its mask from a seed."""
    active = settings.dropout and kind.attention_dropout > 0 and settings.attention == "eager"
    scores = heads * settings.sequence_length
    return Amount(0, (settings.element + settings.dropout_mask_bytes) * scores if active else 0)


def _end(kind: LayerKind, hidden: int, settings: ActivationSettings) -> Site:
    """The last addition to the stream: the outputs of the blocks, their sums, and the stream."""
    terms = 4 if kind.parallel and kind.attention_first else 3
    stream = settings.stream * hidden
    return Site("end", Amount(), Work(terms * stream, 0, stream, stream))
