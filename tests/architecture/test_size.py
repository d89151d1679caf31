"""A model known by its size alone."""

from __future__ import annotations

import pytest

from planner.architecture.size import architecture_from_size
from planner.errors import InputError


@pytest.mark.parametrize(("parameters", "layers"), [
    (7_000_000_000, 32), (70_000_000_000, 80), (1_000_000_000_000, 120), (124_000_000, 12), (13_015_864_321, 40),
    (1_500_000_000, 1), (30_000_000, 4),
])
def test_has_exactly_the_stated_size(parameters: int, layers: int) -> None:
    shape = architecture_from_size(parameters, layers)
    assert (shape.parameters, shape.layer_count) == (parameters, layers)


def test_states_what_is_assumed() -> None:
    shape = architecture_from_size(7_000_000_000, 32)
    # 32 x (4 x 4096^2 + 2 x 4096 + 3 x 4096 x 11672) + 2 x 32000 x 4096 + 4096 = 6,999,511,040, and 488,960 are left
    assert shape.hidden == 4096
    assert shape.assumptions == (
        "only 7,000,000,000 parameters and 32 layers are known: a Llama-like shape with hidden width 4096, 32 heads, "
        "gated feed-forward of width 11672, vocabulary 32,000 with separate input and output embeddings is assumed; "
        "488,960 parameters no such shape holds are counted as one more tensor",
    )


def test_recovers_a_known_shape() -> None:
    shape = architecture_from_size(6_738_415_616, 32)
    block = shape.layers[0].kind.feed_forward
    assert block is not None
    assert (shape.hidden, block.width, len(shape.outside)) == (4096, 11008, 3)


def test_refuses_what_cannot_be_built() -> None:
    with pytest.raises(InputError) as caught:
        architecture_from_size(1_000_000, 32)
    # 32 x (4 x 64^2 + 2 x 64) + 2 x 32000 x 64 + 64 = 4,624,448, and one column of width: 3 x 64 x 32 = 6,144
    assert str(caught.value) == (
        "parameters: 1,000,000 parameters are too few for 32 layers of hidden width 64 and a vocabulary of 32,000; "
        "expected at least 4,630,592; give fewer layers or a smaller vocabulary"
    )
    with pytest.raises(InputError) as caught:
        architecture_from_size(7_000_000_000, 0)
    assert str(caught.value) == "layers: 0 is not valid; expected a whole number, 1 or more"
