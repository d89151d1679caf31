"""Named quantities: elements on one rank, by hand."""

from __future__ import annotations

from random import Random

import pytest

from planner.buckets import reductions
from planner.job import Job
from planner.layouts import stages
from planner.plan import Layout
from planner.quantities import BY_NAME, QUANTITIES, shard_ranks, touched_elements
from planner.resolve import plain_plan
from planner.share import share
from planner.space import job_space
from planner.terms import ceil_divide
from tests.jobs import job


def elements(name: str, found: Job, layout: Layout, **values: int) -> int:
    """The quantity of a job at a layout, with the job's own sizes of buffers or those given."""
    return BY_NAME[name].elements(share(found, layout), {**plain_plan(found), **values})


@pytest.mark.parametrize(
    ("sizes", "ranks", "expected"),
    [
        # One rank holds everything: 6 + 2 + 4.
        (((6, 1), (2, 1), (4, 1)), 1, 12),
        # 12 over 2 is cut at 6: rank 0 touches 6, rank 1 touches 2 + 4 = 6.
        (((6, 1), (2, 1), (4, 1)), 2, 6),
        # 12 over 2 is cut at 6: rank 0 touches 8, rank 1 touches the rest of 8 and 4: 12.
        (((8, 1), (4, 1)), 2, 12),
        # 12 over 3 is cut at 4 and 8: ranks 0 and 1 touch 8 each, rank 2 touches 4.
        (((8, 1), (4, 1)), 3, 8),
        # Three tensors of 4 over 2, cut at 6: the middle one, at 4 to 8, is touched by both: 4 + 4.
        (((4, 3),), 2, 8),
        # 10 over 4 are parts of 3, padded to 12: cut at 3, 6 and 9; every rank touches the one tensor of 10.
        (((10, 1),), 4, 10),
        # 1 + 9: part 5; rank 0 touches 1 + 9, rank 1 touches 9.
        (((1, 1), (9, 1)), 2, 10),
        # More ranks than elements: parts of 1, each touches one tensor; the largest has 2.
        (((2, 1), (1, 1)), 8, 2),
    ],
)
def test_touched_elements(sizes: tuple[tuple[int, int], ...], ranks: int, expected: int) -> None:
    assert touched_elements(sizes, ranks) == expected


@pytest.mark.parametrize("seed", range(20))
def test_touched_elements_counts_every_cut(seed: int) -> None:
    """Against element by element: the tensors that own at least one element of a part, whole."""
    draw = Random(seed)
    sizes = tuple((draw.randint(1, 9), draw.randint(1, 3)) for _ in range(draw.randint(1, 5)))
    ranks = draw.randint(1, 6)
    tensors = [size for size, count in sizes for _ in range(count)]
    owner = [index for index, size in enumerate(tensors) for _ in range(size)]
    part = ceil_divide(len(owner), ranks)
    touched = [sum(tensors[index] for index in set(owner[rank * part : (rank + 1) * part])) for rank in range(ranks)]
    assert touched_elements(sizes, ranks) == max(touched)


@pytest.mark.parametrize(("number", "divisor", "expected"), [(6, 3, 2), (7, 3, 3), (0, 3, 0), (1, 3, 1)])
def test_ceil_divide(number: int, divisor: int, expected: int) -> None:
    assert ceil_divide(number, divisor) == expected


@pytest.mark.parametrize(
    ("layout", "ranks"), [(Layout(data=4), 4), (Layout(data=4, tensor=2), 4), (Layout(data=4, sequence=2), 8)]
)
def test_states_are_shared_by_data_and_sequence_ranks(layout: Layout, ranks: int) -> None:
    assert shard_ranks({"layout": layout}) == ranks


def test_the_parameters_of_a_model_known_by_its_size() -> None:
    found = job()
    assert elements("parameters", found, Layout()) == 30_000_000
    assert elements("trainable", found, Layout()) == 30_000_000
    assert elements("unquantized", found, Layout()) == 30_000_000
    assert elements("quantized", found, Layout()) == 0
    assert elements("one", found, Layout()) == 1


@pytest.mark.parametrize(("ranks", "expected"), [(1, 30_000_000), (2, 15_000_000), (7, 4_285_715)])
def test_a_partition_is_padded_up(ranks: int, expected: int) -> None:
    """30e6 over 7 is 4 285 714.3."""
    assert elements("partition", job(), Layout(data=ranks)) == expected


def test_a_rank_owns_no_more_than_its_partition() -> None:
    """The embedding of 8000 × hidden is the largest tensor; enough ranks own less than all of it."""
    found = job()
    largest = 8000 * found.architecture.hidden
    assert elements("largest_tensor", found, Layout()) == largest
    assert elements("head", found, Layout()) == largest
    assert elements("owned_slice", found, Layout(data=2)) == largest
    assert elements("owned_slice", found, Layout(data=1000)) == 30_000
    assert elements("sharded_tensor", found, Layout(data=3)) == ceil_divide(largest, 3)


def test_a_sub_group_is_no_larger_than_the_partition() -> None:
    """Two ranks share 30 million or 1 billion, whose last layer and five norms miss 1e8 before half of the head."""
    assert elements("sub_group", job(), Layout(data=2)) == 15_000_000
    billion = job(model={"parameters": 1_000_000_000, "layers": 4})
    assert elements("sub_group", billion, Layout(data=2)) == 94_233_600 + 5 * 1_920 + 61_440_000


def test_a_tied_embedding_has_a_second_gradient() -> None:
    """gemma2 with 16000 × 512 ties its embedding, the small job does not."""
    tied = job(model="local_and_global/config.json")
    assert elements("tied_gradient", tied, Layout()) == 16000 * 512
    assert elements("tied_gradient", job(), Layout()) == 0


def test_gradients_that_exist_shrink_with_each_recomputed_layer() -> None:
    """All but the embedding at first; each checkpointed layer takes its own parameters away."""
    found = job()
    kept = BY_NAME["kept_gradients"]
    assert kept.elements(share(found, Layout()), {}) == 30_000_000 - 8000 * found.architecture.hidden
    assert dict(kept.slopes(share(found, Layout()))) == {"recomputed_layers": -found.layer_kinds[0].parameters}


@pytest.mark.parametrize("layout", [Layout(data=2), Layout(tensor=2), Layout(pipeline=2), Layout(expert=2, data=2)])
def test_no_quantity_is_negative_and_slopes_are_measures(layout: Layout) -> None:
    for model in ("dense_then_experts/config.json", {"parameters": 30_000_000, "layers": 4, "vocabulary": 8000}):
        found = job(model=model).with_choices({"layout": (layout,)})
        measures = {measure.name for measure in job_space(found).measures}
        for stage in stages(found):
            part = share(found, layout, stage)
            for quantity in QUANTITIES:
                assert not part.exists or quantity.elements(part, plain_plan(found)) >= 0, quantity.name
                assert set(quantity.slopes(part)) <= measures, quantity.name


def test_names_are_unique_and_explained() -> None:
    assert len(BY_NAME) == len(QUANTITIES)
    assert all(quantity.meaning for quantity in QUANTITIES)


# 30 million parameters twice in 16 bits and the context of 0.9 GiB: 120 MB + 966 367 641 bytes.
def test_flat_copy_where_the_gpu_has_room_for_it() -> None:
    one = Layout(data=1)
    found = job(cluster={"gpus_per_node": 1, "gpu_memory": "1100 MB"})
    assert elements("flat_copy", found, one) == elements("trainable", found, one)
    assert elements("bounced", found, one) == 0
    found = job(cluster={"gpus_per_node": 1, "gpu_memory": "1000 MB"})
    assert elements("flat_copy", found, one) == 0
    assert elements("bounced", found, one) == elements("trainable", found, one)


def test_pinned_shards_are_powers_of_two_of_bytes() -> None:
    layout = Layout(data=2)
    found = job()
    sizes = [-(-t.elements // 2) * 2 for t, count in share(found, layout).counted for _ in range(count)]
    assert 2 * elements("pinned_shards", found, layout) == sum(1 << (size - 1).bit_length() for size in sizes)


def test_reductions_follow_the_tensors_from_the_last_one_on() -> None:
    """A bucket of 7: 4 and 2 fit, 6 does not; one of 5: each goes alone, the 6 outside of the bucket."""
    sizes = ((6, 1), (2, 1), (4, 1))
    assert reductions(sizes, 7) == ((6, 12, 2), (0, 6, 1))
    assert reductions(sizes, 5) == ((8, 12, 1), (6, 8, 1), (0, 6, 1))
    assert reductions(((3, 4),), 6) == ((6, 12, 2), (0, 6, 2))
    assert reductions((), 6) == ()
