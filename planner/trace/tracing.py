"""Traces a model: one layer of each kind runs, then one more of each kind, and the differences are that kind's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from planner.errors import InputError
from planner.trace.building import build, configured, first_line
from planner.trace.flash import flash_kernel
from planner.trace.kinds import Kind, Stack
from planner.trace.libraries import library, require_libraries
from planner.trace.measuring import LayerRun, Run, measured, projection, recomputed
from planner.trace.result import Trace, TracedFacts, TracedLayer, TracedOutside, TracedTensor
from planner.trace.source import configuration

LONGEST = 2048
"""The longer of the two sequences in tokens, where the model has that many positions."""
CHUNK = 64
"""Tokens that a recurrent mixer takes at a time where the configuration does not say."""
LOOPED = 16
"""The same where the model code goes from token to token in a loop (Mamba's first version): the loop takes its time."""


@dataclass(frozen=True)
class Source:
    """What a trace starts from: a name, the fields of a configuration, and the longest sequence where one is asked."""

    name: str
    fields: Mapping[str, Any]
    longest: int | None = None


@dataclass(frozen=True)
class _Difference:
    """What one more layer of a kind adds, at the two sequence lengths."""

    short: Run
    long: Run
    base: tuple[Run, Run]
    place: int

    @property
    def stored(self) -> tuple[int, int]:
        return self.short.stored - self.base[0].stored, self.long.stored - self.base[1].stored


def trace_model(source: str, longest: int | None = None) -> Trace:
    """What the model's own code keeps, needs and computes, found without a GPU, without its weights and offline.

    `source` is a key of catalogs/models.yaml or a path to a config.json; `longest`: tokens of the longer of the two
    sequences that run. Raises InputError for unknown names, for
    models that are no causal language models or cannot run without contents, and where torch or transformers is
    missing.
    """
    versions = require_libraries()
    fields = configuration(source)
    library("transformers").utils.logging.set_verbosity_error()
    config = configured(fields, source)
    with library("torch._subclasses.fake_tensor").FakeTensorMode(), flash_kernel():
        try:
            model, attention = build(config, source)
            return _traced(model, attention, Source(source, fields, longest), versions)
        except InputError:
            raise
        except Exception as error:
            reason = f"{type(error).__name__}: {first_line(error)}"
            raise InputError(f"the model code cannot run on tensors without contents: {reason}", source) from error


def _traced(model: Any, attention: str, source: Source, versions: Mapping[str, str]) -> Trace:
    parameters = sum(parameter.numel() for parameter in model.parameters())
    stack = Stack(model, source.name)
    facts = _facts(model, stack, source.fields)
    kinds, lengths = stack.kinds(), _lengths(model, stack.config, source.longest)
    around = _outside_tensors(model, stack)
    _untie(model)
    base, differences = _differences(model, stack, kinds, lengths)
    doubled = _recomputing(model, stack, kinds, lengths[1])
    sequences = _sequences(model, stack, kinds, lengths[0])
    layers = tuple(
        _layer(stack, kind, found, doubled[2 * index + 1], lengths)
        for index, (kind, found) in enumerate(zip(kinds, differences, strict=True))
    )
    return Trace(
        model=source.name, family=str(model.config.model_type), parameters=parameters, layers=layers,
        outside=_outside(around, base, differences, sequences, lengths), sequence_lengths=lengths, attention=attention,
        forward_peak=_whole(kinds, base[1].forward_peaks, [d.long.forward_peaks for d in differences]),
        backward_peak=_whole(kinds, base[1].backward_peaks, [d.long.backward_peaks for d in differences]),
        versions=versions, facts=facts, notes=_notes(model, attention),
    )


def _facts(model: Any, stack: Stack, fields: Mapping[str, Any]) -> TracedFacts:
    """What the model says of itself; the table of tokens is the output projection's, or the embedding's without one."""
    table, head = model.get_input_embeddings(), projection(model)
    rows = (table if head is None else head).weight
    return TracedFacts(
        config=fields, hidden=int(rows.shape[1]), vocabulary=int(rows.shape[0]),
        positions=int(getattr(stack.config, "max_position_embeddings", None) or 0),
        tied=head is None or head.weight is table.weight, stateful=bool(getattr(model, "_is_stateful", False)),
    )


def _untie(model: Any) -> None:
    """Gives a tied output projection a weight of its own, so that its gradient goes as other weights' gradients go."""
    head = projection(model)
    if head is not None and head.weight is model.get_input_embeddings().weight:
        head.weight = library("torch").nn.Parameter(library("torch").empty_like(head.weight))


def _recomputing(model: Any, stack: Stack, kinds: tuple[Kind, ...], length: int) -> list[tuple[LayerRun, int]]:
    """Layers that are made again in backward, two of each kind in turn, each with what is named beside it."""
    stack.select([place for kind in kinds for place in (kind.places[0], kind.places[min(1, len(kind.places) - 1)])])
    with recomputed(stack.container):
        run = measured(model, stack.container, length)
    return [(layer, run.named) for layer in run.layers]


def _sequences(model: Any, stack: Stack, kinds: tuple[Kind, ...], length: int) -> Run:
    """Two sequences at once, with one layer of each kind."""
    stack.select([kind.places[0] for kind in kinds])
    return measured(model, stack.container, length, batch=2)


def _lengths(model: Any, config: Any, asked: int | None = None) -> tuple[int, int]:
    """Two sequence lengths that the model has positions for, the longer one twice the shorter."""
    most = 2 * _chunk(config) if getattr(model, "_is_stateful", False) else LONGEST
    positions = getattr(config, "max_position_embeddings", None) or most
    longest = max((asked or min(most, int(positions))) // 2 * 2, 2)
    return longest // 2, longest


def _chunk(config: Any) -> int:
    """Tokens that a recurrent mixer takes at a time."""
    named = (getattr(config, name, None) for name in ("chunk_size", "mamba_chunk_size"))
    looped = any(hasattr(config, name) for name in ("time_step_rank", "mamba_dt_rank", "rescale_every"))
    return next((int(size) for size in named if size), LOOPED if looped else CHUNK)


def _differences(
    model: Any, stack: Stack, kinds: tuple[Kind, ...], lengths: tuple[int, int]
) -> tuple[tuple[Run, Run], list[_Difference]]:
    """Runs with one layer of each kind, and with one more of each kind in turn."""
    firsts = [kind.places[0] for kind in kinds]
    base = _runs(model, stack, firsts, lengths)
    found = []
    for index, kind in enumerate(kinds):
        more = kind.places[1] if len(kind.places) > 1 else kind.places[0]
        short, long = _runs(model, stack, [*firsts[: index + 1], more, *firsts[index + 1 :]], lengths)
        found.append(_Difference(short, long, base, index + 1))
    return base, found


def _runs(model: Any, stack: Stack, places: list[int], lengths: tuple[int, int]) -> tuple[Run, Run]:
    stack.select(places)
    short, long = (measured(model, stack.container, length) for length in lengths)
    return short, long


def _layer(
    stack: Stack, kind: Kind, found: _Difference, again: tuple[LayerRun, int], lengths: tuple[int, int]
) -> TracedLayer:
    per_token, constant = _line(found.stored, lengths)
    tokens, run, (remade, named) = lengths[1], found.long.layers[found.place], again
    before = run.entered - run.boundary  # of what is alive when it starts, the input of a kept layer goes
    return TracedLayer(
        kind=kind.name, places=kind.places,
        tensors=_tensors(stack.layers[kind.places[0]].named_parameters()),
        stored_per_token=per_token, stored_constant=constant,
        boundary=run.boundary / tokens,
        forward_working=(run.forward - run.entered) / tokens,
        forward_surplus=max(run.forward - before - found.stored[1], 0) / tokens,
        backward_surplus=max(run.backward - before + found.long.named - found.stored[1], 0) / tokens,
        checkpointed_forward=(remade.forward - remade.entered) / tokens,
        recomputed=(remade.backward - remade.entered + named) / tokens,
        matmul_flops=(found.long.matmul_flops - found.base[1].matmul_flops) / tokens,
        attention_flops=(found.long.attention_flops - found.base[1].attention_flops) / tokens,
    )


def _outside(
    tensors: tuple[TracedTensor, ...], base: tuple[Run, Run], found: list[_Difference], sequences: Run,
    lengths: tuple[int, int],
) -> TracedOutside:
    """What remains of the first runs without one layer of each kind."""
    inside = [sum(difference.stored[index] for difference in found) for index in range(2)]
    per_token, constant = _line((base[0].stored - inside[0], base[1].stored - inside[1]), lengths)
    products = sum(d.long.matmul_flops - base[1].matmul_flops for d in found)
    again, tokens, head = sequences.tables - base[0].tables, lengths[1], base[1].head
    return TracedOutside(
        tensors=tensors, stored_per_token=per_token, stored_constant=constant,
        matmul_flops=(base[1].matmul_flops - products) / tokens,
        tables_per_position=(base[0].tables - again) / lengths[0], tables_per_token=again / lengths[0],
        named=base[1].named / tokens,
        final=max(head.entered - inside[1] - base[1].tables, 0) / tokens,
        final_forward=max(head.final_forward - head.entered, 0) / tokens,
        final_backward=max(head.final_backward - head.entered, 0) / tokens,
        loss_forward=max(head.loss_forward - head.entered, 0) / tokens,
        loss_backward=max(head.loss_backward - head.entered, 0) / tokens,
    )


def _line(stored: tuple[int, int], lengths: tuple[int, int]) -> tuple[float, float]:
    """(per token, constant) of the line through two measurements."""
    slope = (stored[1] - stored[0]) / (lengths[1] - lengths[0])
    return slope, stored[0] - slope * lengths[0]


def _whole(kinds: tuple[Kind, ...], base: tuple[int, ...], more: list[tuple[int, ...]]) -> int:
    """The highest peak of the whole model: part by part, every further layer adds what one of its kind added."""
    further = [len(kind.places) - 1 for kind in kinds]
    return max(
        peak + sum(count * (peaks[part] - peak) for count, peaks in zip(further, more, strict=True))
        for part, peak in enumerate(base)
    )


def _tensors(named: Any) -> tuple[TracedTensor, ...]:
    return tuple(TracedTensor(name, tuple(parameter.shape)) for name, parameter in named)


def _outside_tensors(model: Any, stack: Stack) -> tuple[TracedTensor, ...]:
    """Parameters that are in no layer, tied ones once."""
    prefix = f"{stack.path}."
    return _tensors(item for item in model.named_parameters() if not item[0].startswith(prefix))


def _notes(model: Any, attention: str) -> tuple[str, ...]:
    notes = []
    if attention == "sdpa":
        notes.append("scaled_dot_product_attention keeps what a flash kernel keeps, whatever the mask")
    if attention == "eager":
        notes.append("the model code writes its mixers out: bytes per token hold between the two lengths only")
        notes.append("FLOP between tokens are counted with those of weights")
    if getattr(model, "_is_stateful", False):
        notes.append("recurrent mixers run as written out, without fused kernels")
    return tuple(notes)
