"""Bytes per parameter of the torch runtimes, against what they were measured to hold."""

from __future__ import annotations

import pytest

from planner.ledger import ledger
from planner.plan import Layout, layout_of
from planner.search import solve
from planner.share import share
from planner.techniques import read_runtime
from tests.jobs import job, plan

NOT_STATES = ("activations", "buffers", "reserve")


def states(runtime: str, precision: str, moment: str, stage: int, micro_batch: int = 4) -> float:
    """Bytes per parameter of parameters, gradients and optimizer states at a moment, two ranks."""
    found = job(training={"runtime": runtime, "precision": precision})
    moments = {m.name: m for m in ledger(found, plan(found, zero_stage=stage, micro_batch=micro_batch))["gpu"].moments}
    size = sum(line.bytes for line in moments[moment].lines if line.book not in NOT_STATES)
    return size / found.architecture.parameters


@pytest.mark.parametrize(
    ("precision", "wanted"),
    # fp32 or bf16 autocast: 4 + 4 + 8; everything in bf16: 2 + 2 + 4
    [("fp32", 16.0), ("bf16", 16.0), ("pure-bf16", 8.0)],
)
def test_ddp_holds_everything_at_the_step(precision: str, wanted: float) -> None:
    assert states("ddp", precision, "optimizer_step", 0) == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("precision", "moment", "wanted"),
    # two ranks: (4 + 8) / 2 between steps and + 4 / 2 at the step; all in bf16 (2 + 4) / 2 and + 2 / 2
    [("bf16", "forward", 6.0), ("bf16", "optimizer_step", 8.0), ("pure-bf16", "optimizer_step", 4.0)],
)
def test_fsdp2_divides_everything(precision: str, moment: str, wanted: float) -> None:
    assert states("fsdp2", precision, moment, 3) == pytest.approx(wanted, rel=1e-3)


@pytest.mark.parametrize(("micro_batch", "wanted"), [(4, 6.0), (2, 8.0)])
def test_fsdp1_has_gradients_from_the_first_micro_batch_on(micro_batch: int, wanted: float) -> None:
    """Two ranks: (4 + 8) / 2 with one micro-batch; with more the reduced gradients stand in later ones, 4 / 2."""
    assert states("fsdp1", "bf16", "forward", 3, micro_batch) == pytest.approx(wanted, rel=1e-3)


@pytest.mark.parametrize("runtime", ["ddp", "fsdp1", "fsdp2"])
def test_a_plan_is_found_and_proven(runtime: str) -> None:
    solution = solve(job(training={"runtime": runtime}))
    assert solution.proof.optimal
    assert solution.best.step_time.terms["compute"] > 0
    assert any("gradient" in name for name in solution.best.step_time.terms)


# ── Megatron, Megatron-DeepSpeed, InternEvo ──────────────────────────────────────────────────────────────────────────


def held(runtime: str, moment: str, layout: Layout, precision: str = "bf16", **values: object) -> float:
    """Bytes per parameter of parameters, gradients and optimizer states at a moment, on one rank of a layout."""
    cluster = {"gpu": "a100-sxm-80gb", "gpus_per_node": 4}
    one = job(model=MODEL, cluster=cluster, training={"runtime": runtime, "precision": precision})
    found = one.with_choices({"layout": (layout,)})
    moments = {m.name: m for m in ledger(found, plan(found, layout=layout, **values))["gpu"].moments}
    size = sum(line.bytes for line in moments[moment].lines if line.book not in NOT_STATES)
    return size / share(found, layout).parameters


MODEL = {"parameters": 30_000_000, "layers": 4, "vocabulary": 8000, "heads": 8}
FOUR, TENSOR = Layout(data=4), Layout(tensor=2, data=2)


@pytest.mark.parametrize(
    ("layout", "stage", "moment", "wanted"),
    [
        # 2 of parameters and 4 of main gradients; masters and moments 12 over the ranks that share them
        (FOUR, 1, "forward", 6 + 12 / 4),
        (FOUR, 1, "optimizer_step", 6 + 12 / 4),
        (TENSOR, 1, "forward", 6 + 12 / 2),
        # without the distributed optimizer every rank has all 18
        (FOUR, 0, "optimizer_step", 18),
        # the buffer of parameters beside the original ones, and the gradients': 2 + 2 + 4
        (FOUR, 1, "init", 8),
    ],
)
def test_megatron_keeps_whole_gradients_in_fp32(layout: Layout, stage: int, moment: str, wanted: float) -> None:
    assert held("megatron", moment, layout, zero_stage=stage) == pytest.approx(wanted, rel=1e-3)


@pytest.mark.parametrize(
    ("precision", "dtype", "moment", "wanted"),
    [
        # BLOOM's bf16 optimizer: 2 of parameters, 4 of accumulated and 2 of fresh gradients, 12 / 4; a cast in a buffer
        ("bf16", "fp32", "backward_end", 2 + 4 + 2 + 12 / 4),
        # stage 1 in fp16: 2 and 2; at the step a flat copy and an fp32 copy of the part's gradients: (2 + 4) / 4
        ("fp16", "fp16", "backward_end", 2 + 2 + 12 / 4),
        ("fp16", "fp16", "optimizer_step", 2 + 2 + 12 / 4 + 6 / 4),
        ("fp16", "fp16", "init", 2 + 2),
    ],
)
def test_megatron_under_deepspeed(precision: str, dtype: str, moment: str, wanted: float) -> None:
    found = held(
        "megatron-deepspeed", moment, FOUR, precision, zero_stage=1, micro_batch=2, gradient_accumulation_dtype=dtype
    )
    assert found == pytest.approx(wanted, rel=1e-3)


def test_an_undivided_optimizer_raises_all_gradients_and_joins_them() -> None:
    # 2 of parameters, 2 of gradients, 12 of states; every gradient in fp32 and their flat copy: 4 + 4
    choices = {"zero_stage": 0, "micro_batch": 2, "gradient_accumulation_dtype": "fp16"}
    found = held("megatron-deepspeed", "optimizer_step", FOUR, "fp16", **choices)
    assert found == pytest.approx(2 + 2 + 12 + 8, rel=1e-3)


def test_one_rank_copies_its_gradients_into_buckets_too() -> None:
    """InternEvo flattens a bucket while another is on its way, whether or not somebody reduces with it."""
    tensor = Layout(tensor=4, data=1)
    one = job(model=MODEL, cluster={"gpu": "a100-sxm-80gb", "gpus_per_node": 4}, training={"runtime": "internevo"})
    found = one.with_choices({"layout": (tensor,)})
    lines = next(m.lines for m in ledger(found, plan(found, layout=tensor, zero_stage=1))["gpu"].moments
                 if m.name == "backward_end")  # fmt: skip
    sizes = {line.name: line.bytes for line in lines}
    whole = 2 * share(found, tensor).parameters
    assert (sizes["flattened bucket"], sizes["bucket on its way"]) == (whole, whole)


def test_fsdp2_names_one_gathered_output_while_a_layer_runs() -> None:
    """The running layer's parameters and the output that they were copied from; before, two of them or the root's.

    The block of the gathers holds the root's and a layer's at most, where the root is the larger.
    """
    found = job(training={"runtime": "fsdp2"})
    one = plan(found, zero_stage=3)
    books = ledger(found, one)["gpu"]
    parts = share(found, layout_of(one))
    (forward,) = (moment for moment in books.moments if moment.name == "forward")
    lines = {line.name: line.bytes for line in forward.lines}
    assert lines["layer in use"] == lines["gathered output of the running layer"] == 2 * parts.largest_layer
    before = [line.bytes for line in books.idle if line.name == "gathered output before it"]
    assert before == [2 * parts.largest_layer, 2 * parts.root]


def test_temporaries_of_fsdp1_find_no_room_among_activations() -> None:
    """4 bytes of a rank's part, each as large as a layer's shard: they add to what everything else takes."""
    found = job(training={"runtime": "fsdp1", "optimizer": "adamw-foreach"})
    books = ledger(found, plan(found, zero_stage=3))["gpu"]
    (step,) = (moment for moment in books.moments if moment.name == "optimizer_step")
    apart = {line.name: line.bytes for line in step.lines if line.apart}
    assert apart["temporaries of the optimizer"] == 4 * found.trainable_parameters // 2


def test_blooms_optimizer_casts_all_gradients_when_backward_ends() -> None:
    """Two bytes beside the 8 of parameters and gradients, in all 10 and 12 over the ranks."""
    cluster = {"gpu": "a100-sxm-80gb", "gpus_per_node": 4}
    plain = job(model=MODEL, cluster=cluster, training={"runtime": "megatron-deepspeed"})
    found = plain.with_choices({"layout": (FOUR,)})
    one = plan(found, layout=FOUR, zero_stage=1, micro_batch=2, gradient_accumulation_dtype="fp32")
    lines = next(m.lines for m in ledger(found, one)["gpu"].moments if m.name == "backward_end")
    assert {line.name: line.bytes for line in lines}["16-bit cast of all gradients"] == 2 * found.trainable_parameters


@pytest.mark.parametrize(
    ("stage", "moment", "wanted"),
    [
        # stage 1: 2 of parameters, 12 / 4 of states; whole gradients once backward is done
        (1, "forward", 2 + 12 / 4),
        (1, "backward_end", 2 + 2 + 12 / 4),
        # at the step the rank's gradients flat and in fp32: (2 + 4) / 4
        (1, "optimizer_step", 2 + 2 + 12 / 4 + 6 / 4),
        # stage 3: shards of parameters and gradients, (2 + 2 + 12) / 4; in fp32 at the step, never joined
        (3, "forward", 16 / 4),
        (3, "optimizer_step", 16 / 4 + 4 / 4),
    ],
)
def test_internevo_divides_states_or_everything(stage: int, moment: str, wanted: float) -> None:
    assert held("internevo", moment, FOUR, zero_stage=stage, micro_batch=2) == pytest.approx(wanted, rel=1e-3)


@pytest.mark.parametrize(
    ("moment", "wanted"),
    [
        # 2 of parameters, the fp32 sum 4, 12 / 4 of states; DDP's buckets are buffers
        ("forward", 2 + 4 + 12 / 4),
        ("backward_end", 2 + 4 + 2 + 12 / 4),
    ],
)
def test_nanotron_sums_gradients_undivided(moment: str, wanted: float) -> None:
    assert held("nanotron", moment, FOUR, zero_stage=1, micro_batch=2) == pytest.approx(wanted, rel=1e-3)


@pytest.mark.parametrize(
    ("runtime", "degrees", "dtype"),
    [
        ("megatron", 5, "fp32"),
        ("megatron-deepspeed", 2, ""),
        ("internevo", 2, ""),
        ("nanotron", 3, "fp32"),
        ("fsdp2", 0, ""),
        ("deepspeed", 0, ""),
    ],
)
def test_what_a_runtime_opens(runtime: str, degrees: int, dtype: str) -> None:
    entry = read_runtime(runtime)
    assert (len(entry.degrees), entry.gradient_accumulation_dtype) == (degrees, dtype)


@pytest.mark.parametrize("runtime", ["megatron", "megatron-deepspeed", "internevo"])
def test_a_divided_plan_is_found_and_proven(runtime: str) -> None:
    """Four GPUs with a model that does not fit one of them undivided."""
    model = {"parameters": 3_000_000_000, "layers": 8, "heads": 8}
    cluster = {"gpu": "a100-sxm-40gb", "gpus_per_node": 4}
    solution = solve(job(model=model, cluster=cluster, training={"runtime": runtime}))
    layout = layout_of(solution.best.plan)
    assert solution.proof.optimal
    assert layout.ranks == 4
    assert max(layout.tensor, layout.pipeline) > 1
