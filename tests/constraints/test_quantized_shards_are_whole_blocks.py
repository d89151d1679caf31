"""Weights are gathered in 8 bits where every tensor is eight elements, or a multiple of that, for each rank."""

from __future__ import annotations

from constraints import quantized_shards_are_whole_blocks as constraint
from planner.plan import Layout
from tests.constraints.agreement import verdicts
from tests.jobs import PLAIN, job, plan

# Tables of 8064 × 768; a layer of 4 × 768² of attention, 3 × 768 × 3072, two norms of 768; one more norm.
MODEL = {"parameters": 50_141_952, "layers": 4, "vocabulary": 8064, "hidden": 768, "intermediate": 3072}


def test_accepts_shards_of_eight() -> None:
    """768 elements over 96 ranks are eight each."""
    found = job(model=MODEL, cluster={"gpus_per_node": 8, "nodes": 12}, training={"global_batch": 96})
    assert constraint.because(found, plan(found, layout=Layout(data=96), gather_precision="int8")) is None


def test_rejects_less_than_eight() -> None:
    """768 over 192 ranks are four each."""
    found = job(model=MODEL, cluster={"gpus_per_node": 8, "nodes": 24}, training={"global_batch": 192})
    told = constraint.because(found, plan(found, layout=Layout(data=192), gather_precision="int8"))
    assert told is not None
    assert told.startswith("gather_precision int8 takes a multiple of 8 elements from each of 192 ranks, ")
    assert told.endswith(" has 768")


def test_other_formats_and_runtimes_ask_for_nothing() -> None:
    found = job(model=MODEL, cluster={"gpus_per_node": 8, "nodes": 24}, training={"global_batch": 192})
    assert constraint.because(found, plan(found, layout=Layout(data=192))) is None
    assert constraint.require(job(training={"runtime": "fsdp2"})) == ()


def test_rules_agree_with_the_sentence() -> None:
    """Of two formats over five ranks one is rejected: 768 is no multiple of 40."""
    one = {"zero_stage": 3, "optimizer_offload": "none", "parameter_offload": "none", "micro_batch": 1,
           "checkpoint_interval": 0, "checkpoint_count": 0, "gradient_accumulation_dtype": "bf16", **PLAIN}  # fmt: skip
    one |= {"gather_precision": ["compute", "int8"]}
    found = job(model=MODEL, cluster={"gpus_per_node": 5}, training={"global_batch": 5}, choices=one)
    assert verdicts(constraint, found) == (1, 1)
