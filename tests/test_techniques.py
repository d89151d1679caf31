"""Techniques as data: a choice from a temporary catalog changes the plan, and mistakes name their place."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.errors import InputError, NoPlan
from planner.evaluate import evaluate
from planner.job import Job
from planner.search import solve
from planner.sizes import unmet_fact
from planner.space import job_space
from planner.techniques import read_runtime, read_techniques
from tests.jobs import job, plan

COMPRESSION = """\
choice: state_compression
order: 45
summary: how optimizer states are stored
default: none
values:
  none:
    summary: as the optimizer makes them
  quarter:
    summary: in a quarter of the bytes
    needs: {zero_stage: [1, 2, 3]}
    effects:
      - {kind: scale, book: optimizer_states, factor: 1/4, source: "arithmetic: 8 bits instead of 32"}
"""


def catalog(folder: Path, text: str, name: str = "state_compression") -> Path:
    """A catalog file with `text`."""
    file = folder / f"{name}.yaml"
    file.write_text(text, encoding="utf-8")
    return file


def changed(text: str, old: str, new: str) -> str:
    """`text` with its one `old` replaced."""
    assert text.count(old) == 1
    return text.replace(old, new)


# ── a technique that Python does not know ────────────────────────────────────────────────────────────────────────────


def big_on_small(*catalogs: Path, **choices: object) -> Job:
    """One billion parameters on two GPUs with 10 GiB each."""
    return job(
        catalogs,
        model={"parameters": 1_000_000_000, "layers": 6},
        cluster={"gpu_memory": "10 GiB"},
        choices={"zero_stage": [1, 2, 3], **choices},
    )


def test_the_new_choice_joins_the_space_in_its_place(tmp_path: Path) -> None:
    names = [choice.name for choice in job_space(job([catalog(tmp_path, COMPRESSION)])).choices]
    assert names == [
        "layout", "zero_stage", "secondary_partition", "gather_precision", "reduction_precision",
        "optimizer_offload", "optimizer_on_gpu", "offloaded_update", "parameter_offload", "gradient_sync",
        "state_compression",
        "optimizer_update", "gradient_accumulation_dtype", "reduce_bucket", "prefetch_bucket", "live_parameters",
        "sub_group", "micro_batch", "activation_offload", "loss", "recompute_policy", "mlp_tiles",
        "recompute_modules", "checkpoint_interval", "checkpoint_count",
    ]  # fmt: skip


def test_a_folder_of_catalogs_reads_like_its_files(tmp_path: Path) -> None:
    catalog(tmp_path, COMPRESSION)
    (tmp_path / "notes.txt").write_text("no catalog", encoding="utf-8")
    assert "state_compression" in read_techniques([tmp_path]).choices


def test_a_scaled_book_is_a_quarter(tmp_path: Path) -> None:
    """1e9 parameters over two ranks at stage 1: 0.5e9 × (4 master + 8 moments) = 6e9 bytes; a quarter is 1.5e9."""
    found = big_on_small(catalog(tmp_path, COMPRESSION))
    books = {
        value: evaluate(found, plan(found, zero_stage=1, state_compression=value)).ledger["gpu"].phase("forward").books
        for value in ("none", "quarter")
    }
    assert books["none"]["optimizer_states"] == 6_000_000_000
    assert books["quarter"]["optimizer_states"] == 1_500_000_000
    assert {**books["none"], "optimizer_states": 0} == {**books["quarter"], "optimizer_states": 0}


def test_with_the_technique_the_states_stay_on_the_gpu(tmp_path: Path) -> None:
    """States of 6e9 bytes on each GPU leave too little of 10 GiB over 1.06; 1.5e9 bytes fit beside the rest."""
    without = solve(big_on_small()).best.plan
    assert without["optimizer_offload"] == "cpu"
    plain = solve(big_on_small(catalog(tmp_path, COMPRESSION), state_compression="none")).best.plan
    assert {**plain} == {**without, "state_compression": "none"}
    with_it = solve(big_on_small(catalog(tmp_path, COMPRESSION))).best
    assert with_it.plan["optimizer_offload"] == "none"
    assert with_it.plan["state_compression"] == "quarter"
    assert with_it.violations == ()


def test_with_the_technique_a_plan_exists_at_all(tmp_path: Path) -> None:
    pinned = {"optimizer_offload": "none", "parameter_offload": "none"}
    with pytest.raises(NoPlan) as caught:
        solve(big_on_small(**pinned))
    assert caught.value.conflict == ("gpu_memory_holds_every_phase",)
    assert solve(big_on_small(catalog(tmp_path, COMPRESSION), **pinned)).best.violations == ()


def test_a_technique_is_left_where_it_does_not_help(tmp_path: Path) -> None:
    """Of plans equal in time and memory the one with the earlier value wins; more memory is never preferred."""
    found = job([catalog(tmp_path, COMPRESSION)], choices={"zero_stage": 0})
    assert solve(found).best.plan["state_compression"] == "none"  # quarter needs stages 1 to 3


def test_a_technique_that_changes_numerics_is_taken_only_where_the_job_names_it(tmp_path: Path) -> None:
    file = catalog(
        tmp_path, changed(COMPRESSION, "    needs: {zero", "    changes_numerics: true\n    needs: {zero")
    )
    assert job_space(job([file])).by_name["state_compression"].values == ("none",)
    named = job([file], choices={"state_compression": ["none", "quarter"]})
    assert job_space(named).by_name["state_compression"].values == ("none", "quarter")


def test_a_file_in_place_of_a_shipped_choice(tmp_path: Path) -> None:
    text = "choice: parameter_offload\nsummary: nowhere\norder: 40\ndefault: none\nvalues: {none: {summary: on it}}\n"
    found = job([catalog(tmp_path, text, "parameter_offload")])
    assert job_space(found).by_name["parameter_offload"].values == ("none",)


# ── mistakes ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def mistake(folder: Path, text: str) -> str:
    """The message for a catalog file, its folder left out."""
    with pytest.raises(InputError) as caught:
        job([catalog(folder, text)])
    return str(caught.value).replace(f"{folder}/", "")


def switch(name: str, order: int, needs: str) -> str:
    """A choice of none and on, of which the second has needs."""
    values = f'{{none: {{summary: off}}, "on": {{summary: enabled, needs: {{{needs}}}}}}}'
    return f"choice: {name}\nsummary: a switch\norder: {order}\ndefault: none\nvalues: {values}\n"


def test_a_cycle_of_needs_shows_its_path(tmp_path: Path) -> None:
    catalog(tmp_path, switch("first", 91, 'second: "on"'), "a")
    catalog(tmp_path, switch("second", 92, 'third: "on"'), "b")
    catalog(tmp_path, switch("third", 93, 'first: "on", zero_stage: [1, 2]'), "c")
    with pytest.raises(InputError) as caught:
        read_techniques([tmp_path])
    assert str(caught.value).replace(f"{tmp_path}/", "") == (
        "a.yaml:1:1: needs: a cycle of needs: first=on → second=on → third=on → first=on; leave one of them out"
    )


def test_an_unknown_name_that_does_not_print_is_told_in_letters(tmp_path: Path) -> None:
    """In the path as in the sentence, cut where it is long."""
    told = mistake(tmp_path, switch("first", 91, f'"{chr(0xFEFF) * 20}": "on"')).partition("; one of ")[0]
    name = "'" + "\\ufeff" * 9 + "\\..."
    assert told == f"state_compression.yaml:5:89: values.on.needs.{name}': unknown choice {name}'"


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("choice: first", 'choice: "a\\tb"', "1:9: choice: 'a\\tb'"),
        ("{none: {", '{"\\u202e": {', "5:9: values: '\\u202e'"),
    ],
)
def test_names_of_choices_and_values_are_one_line(tmp_path: Path, old: str, new: str, told: str) -> None:
    text = changed(switch("first", 91, "zero_stage: 1"), old, new)
    expected = "one line of 1 to 200 characters"
    assert mistake(tmp_path, text) == f"state_compression.yaml:{told} is not a name; expected {expected}"


def test_needs_with_several_values_are_no_cycle(tmp_path: Path) -> None:
    catalog(tmp_path, switch("first", 91, 'second: ["on", none]'), "a")
    catalog(tmp_path, switch("second", 92, 'first: ["on", none]'), "b")
    assert {"first", "second"} <= set(read_techniques([tmp_path]).choices)


def test_an_unknown_choice_in_needs(tmp_path: Path) -> None:
    assert mistake(tmp_path, changed(COMPRESSION, "{zero_stage: [1", "{zero_stages: [1")) == (
        "state_compression.yaml:10:26: values.quarter.needs.zero_stages: unknown choice 'zero_stages'; "
        "did you mean 'zero_stage'?"
    )


def test_an_unknown_value_in_needs(tmp_path: Path) -> None:
    assert mistake(tmp_path, changed(COMPRESSION, "{zero_stage: [1, 2, 3]}", "{optimizer_offload: gpu}")) == (
        "state_compression.yaml:10:32: values.quarter.needs.optimizer_offload: unknown value 'gpu' of "
        "optimizer_offload; did you mean 'cpu'?"
    )


def test_an_unknown_kind_of_effect(tmp_path: Path) -> None:
    found = mistake(tmp_path, changed(COMPRESSION, "kind: scale", "kind: scal"))
    assert found.startswith("state_compression.yaml:12:")
    assert "values.quarter.effects[0]" in found
    assert all(repr(kind) in found or kind in found for kind in ("scal", "shard", "scale", "update_frequency"))


def test_an_unknown_book(tmp_path: Path) -> None:
    assert mistake(tmp_path, changed(COMPRESSION, "book: optimizer_states", "book: optimizer_state")) == (
        "state_compression.yaml:12:29: values.quarter.effects[0].book: 'optimizer_state' is not valid; "
        "expected one of parameters, gradients, optimizer_states, activations, buffers, reserve; "
        "did you mean 'optimizer_states'?"
    )


def test_an_unknown_quantity(tmp_path: Path) -> None:
    effect = "{kind: allocate, name: tables, book: buffers, of: partitions, moments: training}"
    text = COMPRESSION[: COMPRESSION.index("{kind")] + effect + "\n"
    found = mistake_of_terms(catalog(tmp_path, text))
    assert found.message == "unknown quantity 'partitions'"
    assert found.expected.startswith("one of one, parameters, trainable, ")


@pytest.mark.parametrize(
    ("field", "effect"),
    [
        ("message", "{kind: collective, name: a, operation: all_gather, bytes: 2, of: one, axis: data, every: step, "
                    "message: bucket}"),
        ("ahead", "{kind: collective, name: a, operation: all_gather, bytes: 2, of: one, axis: data, every: step, "
                  "ahead: bucket}"),
        ("calls", "{kind: update, name: a, unit: gpu, bytes: 2, of: one, calls: bucket}"),
    ],
)  # fmt: skip
def test_an_unknown_quantity_beside_the_one_that_is_sent(tmp_path: Path, field: str, effect: str) -> None:
    found = mistake_of_terms(catalog(tmp_path, COMPRESSION[: COMPRESSION.index("{kind")] + effect + "\n"))
    assert (found.path, found.message) == (f"values.quarter.effects[0].{field}", "unknown quantity 'bucket'")


SIZE = """\
choice: gather_bucket
order: 57
summary: a buffer that nobody has
domain: elements
default: own
"""


def test_a_size_of_a_buffer_that_there_is_none_of(tmp_path: Path) -> None:
    found = mistake_of_terms(catalog(tmp_path, SIZE, "gather_bucket"))
    assert (found.path, found.message) == ("choice", "'gather_bucket' is no buffer whose size is known")
    assert found.expected == "one of reduce_bucket, prefetch_bucket, live_parameters, sub_group"


def test_a_size_under_facts_of_ones_own(tmp_path: Path) -> None:
    """A file in the place of the shipped one says where other sizes exist, and from what size on."""
    text = SIZE.replace("gather_bucket", "sub_group") + "least: 10\nwhere: {nodes: {at_least: 2}}\n"
    file = catalog(tmp_path, text, "sub_group")
    assert unmet_fact(job([file]), "sub_group", 10) == "nodes"
    assert job([file], choices={"sub_group": 10}).choices["sub_group"] == (10,)
    found = mistake_of_terms(catalog(tmp_path, text.replace("nodes:", "node:"), "sub_group"))
    assert (found.path, found.message) == ("where.node", "unknown name 'node' in a condition")


def test_an_unknown_name_in_a_condition(tmp_path: Path) -> None:
    text = changed(COMPRESSION, "factor: 1/4,", "factor: 1/4, when: {zero: 1},")
    found = mistake_of_terms(catalog(tmp_path, text))
    assert (found.path, found.message) == (
        "values.quarter.effects[0].when.zero", "unknown name 'zero' in a condition",
    )  # fmt: skip
    assert found.expected.startswith("one of runtime, precision, optimizer, ")


def test_an_unknown_fact_under_where(tmp_path: Path) -> None:
    """Facts of the job, to which choices do not belong."""
    text = COMPRESSION.replace("  quarter:\n", "  quarter:\n    where: {zero_stage: 3}\n")
    found = mistake_of_terms(catalog(tmp_path, text))
    assert (found.path, found.message) == (
        "values.quarter.where.zero_stage", "unknown name 'zero_stage' in a condition",
    )  # fmt: skip
    assert found.expected == (
        "one of runtime, precision, optimizer, method, gpus, nodes, paged, clipping, feed_forward, "
        "sequence_length, kernels, products, experts, shared_experts, latent_attention"
    )


def mistake_of_terms(file: Path) -> InputError:
    """The mistake that shows when terms are made."""
    with pytest.raises(InputError) as caught:
        solve(job([file]))
    return caught.value


def test_an_unknown_runtime() -> None:
    with pytest.raises(InputError) as caught:
        read_runtime("deepsped")
    assert str(caught.value) == (
        "training.runtime: unknown runtime 'deepsped'; expected one of ddp, deepspeed, fsdp1, fsdp2, internevo, "
        "megatron, megatron-deepspeed, nanotron; did you mean 'deepspeed'?"
    )
