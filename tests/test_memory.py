"""What adapters and a quantized base change in the books."""

from __future__ import annotations

from random import Random

import pytest

from planner.job import Job
from planner.ledger import Ledger, ledger, stage_ledgers
from planner.memory import least_activations
from planner.plan import Layout, Plan
from planner.share import share
from planner.space import job_space
from tests.jobs import job, plan, random_plan

LORA = {"method": {"lora": {"rank": 4}}}
QLORA = {"method": {"qlora": {"rank": 4}}}


def books(method: dict[str, object], **values: object) -> dict[str, dict[str, int]]:
    """Lines of the optimizer step on the GPU, by book."""
    found = job(training=method)
    moment = {m.name: m for m in ledger(found, plan(found, **values))["gpu"].moments}["optimizer_step"]
    lines: dict[str, dict[str, int]] = {}
    for line in moment.lines:
        lines.setdefault(line.book, {})[line.name] = line.bytes
    return lines


def test_only_adapters_have_gradients_and_states() -> None:
    """Stage 0, 16 bit: 2 bytes for each parameter, 2 + 8 of gradients and 4 + 8 of states for each adapter element."""
    found = job(training=LORA)
    total, adapters = found.architecture.parameters, found.trainable_parameters
    lines = books(LORA, zero_stage=0)
    assert lines["parameters"] == {"parameters": 2 * total}
    assert sum(lines["gradients"].values()) == (2 + 8) * adapters
    assert sum(lines["optimizer_states"].values()) == (4 + 8) * adapters


def test_stage_2_keeps_frozen_weights_whole_and_stage_3_divides_them() -> None:
    found = job(training=LORA)
    total = found.architecture.parameters
    assert books(LORA, zero_stage=2)["parameters"]["parameters"] == 2 * total
    assert books(LORA, zero_stage=3)["parameters"]["parameter shards"] == total  # 2 bytes over 2 ranks


def test_a_quantized_base_takes_about_half_a_byte() -> None:
    """0.51587 bytes for each weight of the linear layers, 2 for everything else."""
    found = job(training=QLORA)
    lines = books(QLORA, zero_stage=0)["parameters"]
    quantized = share(found, Layout(data=2)).quantized
    assert lines["parameters"] == 2 * (found.architecture.parameters - quantized)
    assert lines["4-bit base"] == -(-quantized * 51587 // 100000)


def test_autocast_caches_the_weights_of_checkpointed_layers() -> None:
    """Four layers checkpointed: two bytes for each weight of their linear layers until the forward pass ends."""
    found = job(training={"runtime": "ddp"})
    moments = {m.name: m for m in ledger(found, plan(found, checkpoint_count=4, checkpoint_interval=1))["gpu"].moments}
    names = ("forward", "loss", "backward_end")
    lines = {name: {line.name: line.bytes for line in moments[name].lines} for name in names}
    kind = found.layer_kinds[0]
    matrices = sum(tensor.elements for tensor in kind.tensors if len(tensor.shape) == 2)
    name = "16-bit weights cached by autocast"
    assert lines["forward"][name] == lines["loss"][name] == 4 * 2 * matrices
    assert name not in lines["backward_end"]


# ── pipelines ────────────────────────────────────────────────────────────────────────────────────────────────────────

# Eight layers on four GPUs, eight micro-batches of one sequence where the data-parallel degree is 1.
DEEP = {
    "model": {"parameters": 100_000_000, "layers": 8, "vocabulary": 8000, "heads": 8},
    "cluster": {"gpu": "a100-sxm-80gb", "gpus_per_node": 4},
}
KEPT, CHECKPOINTS = "activations of kept layers", "checkpoints"


def divided(layout: Layout, runtime: str = "megatron", **values: object) -> tuple[Job, Plan]:
    """The deep job with one layout, and its plainest plan with some values replaced."""
    found = job(**DEEP, training={"runtime": runtime}).with_choices({"layout": (layout,)})
    return found, plan(found, layout=layout, **values)


def line(books: Ledger, moment: str, name: str, device: str = "gpu") -> int:
    """Bytes of the lines of a name at a moment."""
    found = {m.name: m for m in books[device].moments}[moment]
    return sum(one.bytes for one in found.lines if one.name == name)


def test_a_stage_holds_the_micro_batches_under_way() -> None:
    """Four stages of two layers: stage r holds 4 - r micro-batches, at backward's end all but the one that ends."""
    layout = Layout(pipeline=4)
    found, one = divided(layout)
    stored = found.activations_of(found.layer_kinds[0]).stored.at(512)
    ledgers = stage_ledgers(found, one)
    waiting = {stage: line(ledgers[stage], "forward", KEPT) for stage in ledgers}
    assert waiting == {"first": 4 * 2 * stored, "inner": 3 * 2 * stored, "last": 1 * 2 * stored}
    ended = {stage: line(ledgers[stage], "backward_end", KEPT) for stage in ledgers}
    assert ended == {"first": 3 * 2 * stored, "inner": 2 * 2 * stored, "last": 0}


def test_two_micro_batches_are_all_that_can_be_under_way() -> None:
    """A global batch of 8 in micro-batches of 4."""
    found, one = divided(Layout(pipeline=4), micro_batch=4)
    stored = found.activations_of(found.layer_kinds[0]).stored.at(4 * 512)
    assert line(stage_ledgers(found, one)["first"], "forward", KEPT) == 2 * 2 * stored


def test_checkpoints_wait_as_well() -> None:
    """Every layer checkpointed: two boundaries for each of four micro-batches on the first stage."""
    found, one = divided(Layout(pipeline=4), checkpoint_interval=1, checkpoint_count=2)
    boundary = found.activations_of(found.layer_kinds[0]).boundary.at(512)
    books = stage_ledgers(found, one)["first"]
    assert line(books, "forward", CHECKPOINTS) == line(books, "recompute_start", CHECKPOINTS) == 4 * 2 * boundary
    assert line(books, "backward_end", CHECKPOINTS) == 3 * 2 * boundary
    assert line(books, "forward", KEPT) == 0


def test_while_a_layer_is_made_again_other_micro_batches_keep_theirs() -> None:
    """One layer of two checkpointed: its recomputation starts when the kept one is done, in this micro-batch only."""
    found, one = divided(Layout(pipeline=4), checkpoint_interval=1, checkpoint_count=1)
    stored = found.activations_of(found.layer_kinds[0]).stored.at(512)
    books = stage_ledgers(found, one)["first"]
    assert line(books, "forward", KEPT) == 4 * stored
    assert line(books, "recompute_start", KEPT) == line(books, "backward_end", KEPT) == 3 * stored


def test_chunks_hold_part_of_a_stage() -> None:
    """Two chunks to a stage: the first holds 2·3 + 4 + 1 = 11 halves of its two layers; rounded up layer by layer."""
    found, one = divided(Layout(pipeline=4, virtual_stages=2))
    stored = found.activations_of(found.layer_kinds[0]).stored.at(512)
    assert line(stage_ledgers(found, one)["first"], "forward", KEPT) == 2 * -(-11 * stored // 2)


def test_only_the_last_stage_has_logits() -> None:
    found, one = divided(Layout(pipeline=4))
    logits = {stage: line(books, "loss", "logits and loss") for stage, books in stage_ledgers(found, one).items()}
    assert logits["first"] == logits["inner"] == 0
    assert logits["last"] == found.activations.loss_backward.at(512)


def test_two_stages_have_no_inner_one() -> None:
    assert list(stage_ledgers(*divided(Layout(pipeline=2, data=2)))) == ["first", "last"]


def test_deepspeeds_pipeline_keeps_inputs_and_outputs_beside() -> None:
    """Two bytes of width for each token: an output for each of 4 micro-batches on the first, an input on the last."""
    found, one = divided(Layout(pipeline=4), "megatron-deepspeed")
    ledgers, width = stage_ledgers(found, one), 2 * 512 * found.architecture.hidden
    outputs = {stage: line(books, "forward", "outputs of micro-batches under way") for stage, books in ledgers.items()}
    inputs = {
        stage: line(books, "forward", "received inputs of micro-batches under way") for stage, books in ledgers.items()
    }
    assert outputs == {"first": 4 * width, "inner": 3 * width, "last": 0}
    assert inputs == {"first": 0, "inner": 3 * width, "last": width}
    messages = [line(books, "forward", "received from the stages beside") for books in ledgers.values()]
    assert messages == [2 * width] * 3


# ── other ways to divide ─────────────────────────────────────────────────────────────────────────────────────────────


def test_context_parallel_ranks_have_a_part_of_each_sequence() -> None:
    """512 tokens over four ranks: 128 each, as a job with sequences of 128 has them."""
    found, one = divided(Layout(sequence=4))
    stored = found.activations_of(found.layer_kinds[0]).stored.at(128)
    assert found.tokens(one) == 128
    assert line(ledger(found, one), "forward", KEPT) == 8 * stored


def test_tensor_parallel_ranks_keep_a_part_of_each_layer() -> None:
    """With a divided stream four ranks keep a quarter of it; with a whole one they keep the layer's inputs whole."""
    whole = line(ledger(*divided(Layout(data=4))), "forward", KEPT)
    parts = line(ledger(*divided(Layout(tensor=4))), "forward", KEPT)
    streams = line(ledger(*divided(Layout(tensor=4, whole_stream=True))), "forward", KEPT)
    assert whole <= 4 * parts < 1.01 * whole
    assert parts < streams < whole


def test_activations_wait_on_the_host_where_they_are_offloaded() -> None:
    """Four ranks of a node move the same amount: nothing of it stays on the GPU."""
    on_gpu = divided(Layout(data=4), "fsdp2", zero_stage=3, checkpoint_interval=1, checkpoint_count=3)
    away = (on_gpu[0], on_gpu[1].changed(activation_offload="cpu"))
    stays, moved = ledger(*on_gpu), ledger(*away)
    for name in (KEPT, CHECKPOINTS):
        size = line(stays, "forward", name)
        assert size > 0
        assert line(stays, "forward", f"{name} on the host", "host") == 0
        assert line(moved, "forward", name) == 0
        assert line(moved, "forward", f"{name} on the host", "host") == 4 * size
    assert line(moved, "forward", "one layer running forward") == line(stays, "forward", "one layer running forward")


def test_selective_recomputation_keeps_more_and_makes_less_again() -> None:
    """Each checkpoint keeps half of the products and the attention; what is made again lacks what it counts of them."""
    found, full = divided(Layout(data=4), "fsdp2", zero_stage=3, checkpoint_interval=1, checkpoint_count=8)
    layer, books = found.activations_of(found.layer_kinds[0]), ledger(found, full)
    chosen = ledger(found, full.changed(recompute_policy="selective"))
    assert line(books, "forward", CHECKPOINTS) == 8 * layer.boundary.at(512)
    assert line(chosen, "forward", CHECKPOINTS) == 8 * (layer.boundary + layer.selective).at(512)
    again = line(books, "recompute_start", "recomputed segment")
    assert line(chosen, "recompute_start", "recomputed segment") == again - layer.selective_shared.at(512)


def test_frozen_models_stand_beside_the_trained_one() -> None:
    """A reference model alike and a catalog model, two bytes each, whole on every rank; divided in FSDP."""
    frozen = {"frozen_models": ["same", "llama-3.2-1b"]}
    found = job(training={"runtime": "deepspeed", **frozen})
    assert found.frozen_models == found.architecture.parameters + 1_235_814_400
    assert line(ledger(found, plan(found)), "forward", "frozen models") == 2 * found.frozen_models
    shared = job(training={"runtime": "fsdp2", **frozen})
    assert line(ledger(shared, plan(shared, zero_stage=3)), "forward", "frozen models") == shared.frozen_models


def test_a_frozen_base_is_kept_in_16_bits_where_a_trained_model_is_in_fp32() -> None:
    """DDP: 2 bytes of everything under adapters, 4 where all is trained."""
    for method, width in ({"runtime": "ddp", **LORA}, 2), ({"runtime": "ddp"}, 4):
        found = job(training=method)
        forward = next(m for m in ledger(found, plan(found))["gpu"].moments if m.name == "forward")
        lines = {line.name: line.bytes for line in forward.lines}
        assert lines["parameters"] == width * found.architecture.parameters


def test_the_loss_in_chunks_is_a_choice() -> None:
    """8 sequences of 512 tokens and 8000 words: 12 bytes a logit at once, in chunks 1024 tokens' worth of them."""
    found = job()
    assert {choice.name: choice.values for choice in job_space(found).choices}["loss"] == ("standard", "chunked")
    lines = {}
    for loss in ("standard", "chunked"):
        moments = ledger(found, plan(found, loss=loss, micro_batch=8))["gpu"].moments
        moment = next(m for m in moments if m.name == "loss")
        lines[loss] = {line.name: line.bytes for line in moment.lines}["logits and loss"]
    assert lines["standard"] == 12 * 8000 * 8 * 512
    assert 12 * 8000 * 1024 <= lines["chunked"] < lines["standard"] / 2


@pytest.mark.parametrize("runtime", ["deepspeed", "ddp", "fsdp2", "megatron"])
def test_no_plan_holds_less_than_the_least_activations(runtime: str) -> None:
    """The floor by which candidates are left out, against the books of drawn plans, offloaded ones among them."""
    plain = job(training={"runtime": runtime})
    found, draw = plain.with_choices({"loss": plain.losses}), Random(0)
    for _ in range(40):
        drawn = random_plan(found, draw)
        stages = stage_ledgers(found, drawn).values()
        most = max(moment.books["activations"] for books in stages for moment in books["gpu"].moments)
        assert least_activations(found, drawn) <= most
