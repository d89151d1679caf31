"""Finds a model's layers and tells their kinds apart: what is built alike and set alike is one kind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from planner.errors import InputError
from planner.trace.libraries import library

_PLACE_NAMES = ("idx", "index", "layer_id", "layer_number")


@dataclass(frozen=True)
class Kind:
    """Layers of one kind: `name`, and the places of all of them."""

    name: str
    places: tuple[int, ...]


class Stack:
    """The layers of a model, of which any selection can be put in place."""

    def __init__(self, model: Any, source: str) -> None:
        self.config = model.config.get_text_config()
        self.path, self.container = _layers(model, int(self.config.num_hidden_layers), source)
        self.layers = list(self.container)
        self._lists = {name: value for name, value in vars(self.config).items() if self._is_one_per_layer(value)}

    def _is_one_per_layer(self, value: Any) -> bool:
        """Whether a value has an entry for each layer, rather than being a list of places."""
        return isinstance(value, list) and len(value) == len(self.layers) and value != list(range(len(value)))

    def select(self, places: Sequence[int]) -> None:
        """Leaves the layers at `places` in the model, in this order; where a place stands again, a copy of its layer.

        Lists with one entry per layer follow; entries beyond keep what they hold, for code that asks by a layer's
        original place.
        """
        self.container._modules.clear()
        for place, original in enumerate(places):
            again = original in places[:place]
            self.container._modules[str(place)] = _copy(self.layers[original]) if again else self.layers[original]
        self.config.num_hidden_layers = len(places)
        for name, value in self._lists.items():
            chosen = [value[place] for place in places]
            setattr(self.config, name, chosen + value[len(chosen):])

    def kinds(self) -> tuple[Kind, ...]:
        """Kinds in the order of their first layers."""
        found: dict[Any, list[int]] = {}
        for place, layer in enumerate(self.layers):
            found.setdefault((self._listed(place), _signature(layer)), []).append(place)
        names = [type(self.layers[places[0]]).__name__ for places in found.values()]
        numbers = [names[: index + 1].count(name) for index, name in enumerate(names)]
        return tuple(
            Kind(f"{name}-{number}" if names.count(name) > 1 else name, tuple(places))
            for name, number, places in zip(names, numbers, found.values(), strict=True)
        )

    def _listed(self, place: int) -> tuple[str, ...]:
        return tuple(repr(value[place]) for value in self._lists.values())


def _copy(layer: Any) -> Any:
    """The layer again, with parameters and buffers of its own that have no contents either."""
    torch = library("torch")
    own: dict[int, Any] = {id(tensor): torch.empty_like(tensor) for tensor in layer.buffers()}
    own |= {
        id(weight): torch.nn.Parameter(torch.empty_like(weight), weight.requires_grad) for weight in layer.parameters()
    }
    return deepcopy(layer, own)


def _layers(model: Any, count: int, source: str) -> tuple[str, Any]:
    """Name and list of the layers: the outermost list that has as many modules as the configuration has layers."""
    module_list = library("torch").nn.ModuleList
    lists = [(name, module) for name, module in model.named_modules() if isinstance(module, module_list)]
    found = [item for item in lists if len(item[1]) == count]
    if not found:
        raise InputError(f"no list of {count} layers is in the model", source, expected="a stack of layers")
    return min(found, key=lambda item: item[0].count("."))


def _signature(layer: Any) -> tuple[Any, ...]:
    """Class, parameters and settings of a layer and of its parts; numbers that only say where it stands left out."""
    shapes = tuple((name, tuple(parameter.shape)) for name, parameter in layer.named_parameters())
    return type(layer).__name__, shapes, tuple(_settings(layer))


def _settings(layer: Any) -> Iterator[tuple[str, str, Any]]:
    """Whole numbers, truth values and texts as they are; of other numbers only whether they are zero."""
    for part, module in layer.named_modules():
        for name, value in sorted(vars(module).items()):
            if name.startswith("_") or any(place in name for place in _PLACE_NAMES):
                continue
            if isinstance(value, float):
                yield part, name, bool(value)
            elif isinstance(value, (int, str)):
                yield part, name, value
