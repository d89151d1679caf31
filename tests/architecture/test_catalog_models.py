"""Models that ship with the planner."""

from __future__ import annotations

import pytest

from planner.architecture.catalog_models import catalog_model, catalog_models
from planner.errors import InputError


@pytest.mark.parametrize("key", catalog_models())
def test_counts_what_was_published(key: str) -> None:
    architecture = catalog_model(key)
    assert architecture.parameters == catalog_models()[key]["published_parameters"]
    assert architecture.name == key
    assert catalog_models()[key]["source"]


def test_says_which_key_is_near() -> None:
    with pytest.raises(InputError) as caught:
        catalog_model("lama-2-7b")
    assert str(caught.value) == (
        "model: unknown model 'lama-2-7b'; expected a key of catalogs/models.yaml, a path to a config.json, or "
        "{parameters: N, layers: L}; did you mean 'llama-2-7b'?"
    )
