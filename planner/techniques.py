"""Techniques and runtimes as data: reads `catalogs/techniques/*.yaml` and `catalogs/runtimes/*.yaml`.

A choice is a slot, a technique one of its values. `needs` and `conflicts` name values of other choices; the needs form
a directed graph over techniques that must be free of cycles.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from planner.catalog_files import documents
from planner.effects import AnyEffect, Scalar, When, as_tuple
from planner.errors import InputError
from planner.fields import Name, name_of
from planner.plan import LAYOUT_FACTS
from planner.reading import Document, nearest, read_document, validated
from planner.units import shown


def _numbered(values: object) -> object:
    """Keys that are whole numbers, written as text since YAML keys are text, become numbers; others are names."""
    if not isinstance(values, dict):
        return values
    return {
        int(key) if isinstance(key, str) and key.isdecimal() else name_of(key): value for key, value in values.items()
    }


Degree = Literal["tensor", "pipeline", "sequence", "expert", "virtual_stages"]
Relation = Literal["needs", "conflicts"]
OneOrMore = Annotated[tuple[Scalar, ...], BeforeValidator(as_tuple)]


class TechniqueEntry(BaseModel):
    """One value of a choice as the catalog writes it.

    One that changes numerics, or needs what is not everywhere (`on_request`), is only taken where the job names it.
    `where` are the facts of a job under which the technique exists and does anything.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    summary: str
    source: str = ""
    effects: tuple[AnyEffect, ...] = ()
    needs: dict[str, OneOrMore] = Field(default_factory=dict)
    conflicts: dict[str, OneOrMore] = Field(default_factory=dict)
    where: When = Field(default_factory=dict)
    changes_numerics: bool = False
    on_request: bool = False


Entries = Annotated[dict[int | str, TechniqueEntry], BeforeValidator(_numbered)]


class ChoiceEntry(BaseModel):
    """One choice as the catalog writes it.

    `domain` says where its values come from when they are not listed; `order` is its place among the choices: of equal
    plans the one with the earlier value of an earlier choice wins. `fine` marks a choice whose values alone do not make
    another plan worth naming as runner-up. Of `elements`, the size of a buffer, every job has a value of its own;
    others are only taken where it names them, from `least` on, and under the facts of `where`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    choice: Name
    summary: str
    source: str = ""
    domain: Literal[
        "listed", "divisors_of_batch", "layers", "intervals", "accumulation_dtypes", "layouts", "elements"
    ] = "listed"  # fmt: skip
    default: Scalar
    order: int
    fine: bool = False
    where: When = Field(default_factory=dict)
    least: int = 1
    effects: tuple[AnyEffect, ...] = ()
    values: Entries = Field(default_factory=dict)


class RuntimeEntry(BaseModel):
    """A runtime: what it allocates and sends whatever the plan, and the margin its allocator needs.

    `choices` names the values that the runtime has. `degrees` is the parallelism beside data parallelism that is
    planned by itself, `degrees_on_request` what it has where the job names it; `whole_stream` as in Layout,
    `either_stream` says that the other way is open too; `uneven_stages`: the ends of a pipeline may hold fewer layers;
    `hybrid`: states may be divided inside nodes only, and replicated between them. `kernels` and
    `gradient_accumulation_dtype` are what it uses unless told otherwise (empty: the precision of compute). `autocast`
    says that 16-bit training keeps fp32 weights in the layers and casts them for every product.

    For the time: `flash_kernel` is what it runs for flash attention, an implementation of
    catalogs/efficiency/attention.yaml. `accumulated_bytes`: device memory traffic per trained weight and micro-batch of
    adding its gradient to what is there. `stops_early`: recomputation ends with the last tensor that backward needs.
    `context` is how context-parallel ranks share a sequence, see `planner.speed.operations.Division`.
    `tensor_backward`: tensor-parallel layers wait in backward for all of their exchange (`awaited`), keep what forward
    gathered (`kept`), or gather again and reduce `beside_products` of the weights' and inputs' gradients.
    `messages_beside_chunks`: a stage with several chunks computes one while another's message is on its way.
    `host_update`: microseconds of the host per trained tensor at the step, which the GPU waits for.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    runtime: str
    version: str
    summary: str
    source: str = ""
    fragmentation: float
    fragmentation_source: str
    host_margin: float
    host_margin_source: str
    cpu_optimizers: tuple[str, ...] = ()
    cpu_optimizers_source: str = ""
    autocast: bool = False
    degrees: tuple[Degree, ...] = ()
    degrees_on_request: tuple[Degree, ...] = ()
    whole_stream: bool = False
    either_stream: bool = False
    uneven_stages: bool = False
    hybrid: bool = False
    kernels: str = "huggingface"
    gradient_accumulation_dtype: str = ""
    flash_kernel: str = "flash"
    accumulated_bytes: float = 0.0
    stops_early: bool = True
    context: Literal["ring", "uneven_ring", "heads"] = "ring"
    tensor_backward: Literal["awaited", "kept", "beside_products"] = "awaited"
    messages_beside_chunks: bool = False
    host_update: float = 0.0
    choices: dict[str, OneOrMore] = Field(default_factory=dict)
    effects: tuple[AnyEffect, ...]


@dataclass(frozen=True)
class Techniques:
    """Everything the technique catalogs say, by choice name."""

    choices: Mapping[str, ChoiceEntry]
    documents: Mapping[str, Document]

    def entry(self, choice: str, value: object) -> TechniqueEntry | None:
        """The technique that `value` of `choice` is, None where values are plain numbers."""
        known = self.choices.get(choice)
        values: Mapping[object, TechniqueEntry] = known.values if known is not None else {}  # type: ignore[assignment]
        return values.get(value)

    def pairs(self, what: Relation) -> Iterable[tuple[str, Scalar, str, tuple[Scalar, ...]]]:
        """(choice, value, other choice, values of it) for every need or conflict."""
        for name, choice in self.choices.items():
            for value, entry in choice.values.items():
                for other, values in getattr(entry, what).items():
                    yield name, value, other, values


def read_techniques(extra: Iterable[Path] = ()) -> Techniques:
    """The shipped technique catalog, with choice files from `extra` folders or files added or put in place.

    Raises InputError for a malformed file, a reference to an unknown choice or value, and a cycle of needs.
    """
    shipped, shipped_places = _shipped()
    choices, places = dict(shipped), dict(shipped_places)
    for document in documents(extra, "technique"):
        entry = validated(ChoiceEntry, document)
        _check_domain(entry, document, choices.get(entry.choice))
        choices[entry.choice], places[entry.choice] = entry, document
    ordered = dict(sorted(choices.items(), key=lambda item: (item[1].order, item[0])))
    techniques = Techniques(ordered, places)
    _check_references(techniques)
    _check_cycles(techniques)
    return techniques


@lru_cache(maxsize=1)
def _shipped() -> tuple[dict[str, ChoiceEntry], dict[str, Document]]:
    """The technique files of the package, by choice."""
    choices, documents = {}, {}
    for file in sorted(files("catalogs").joinpath("techniques").iterdir(), key=lambda item: item.name):
        if file.name.endswith(".yaml"):
            document = read_document(f"catalogs/techniques/{file.name}", text=file.read_text(encoding="utf-8"))
            entry = validated(ChoiceEntry, document)
            choices[entry.choice], documents[entry.choice] = entry, document
    return choices, documents


@lru_cache(maxsize=16)
def read_runtime(name: str) -> RuntimeEntry:
    """The runtime called `name`; InputError with the nearest spelling where there is none."""
    folder = files("catalogs").joinpath("runtimes")
    names = sorted(file.name.removesuffix(".yaml") for file in folder.iterdir() if file.name.endswith(".yaml"))
    if name not in names:
        raise InputError(
            f"unknown runtime '{name}'",
            path="training.runtime",
            expected="one of " + ", ".join(names),
            hint=nearest(name, names),
        )
    text = folder.joinpath(f"{name}.yaml").read_text(encoding="utf-8")
    return validated(RuntimeEntry, read_document(f"catalogs/runtimes/{name}.yaml", text=text))


def _check_domain(entry: ChoiceEntry, document: Document, before: ChoiceEntry | None) -> None:
    """A file in the place of another gives the choice values of the same kind."""
    if before is not None and entry.domain != before.domain:
        message = f"the domain of {entry.choice} is {before.domain}, not {entry.domain}"
        raise document.error(("domain",), message, f"domain: {before.domain}")


def _check_references(techniques: Techniques) -> None:
    """Every need and conflict names a degree of the layout, or a choice and a value of it where values are listed."""
    kinds: tuple[Relation, ...] = ("needs", "conflicts")
    for what in kinds:
        for choice, value, other, values in techniques.pairs(what):
            path = ("values", str(value), what, other)
            if other in LAYOUT_FACTS:
                continue
            if other not in techniques.choices:
                raise _input_error(
                    techniques, choice, path, f"unknown choice {shown(other)}", _hint(other, techniques.choices)
                )
            known = techniques.choices[other].values
            for wrong in (item for item in values if known and item not in known):
                message = f"unknown value {shown(str(wrong))} of {other}"
                hint = _hint(str(wrong), [str(value) for value in known])
                raise _input_error(techniques, choice, path, message, hint)


def _check_cycles(techniques: Techniques) -> None:
    """No technique needs itself by way of others; only needs that leave a single value open can force a cycle."""
    import networkx

    graph: networkx.DiGraph[str] = networkx.DiGraph()
    for choice, value, other, values in techniques.pairs("needs"):
        if len(values) == 1:
            graph.add_edge(f"{choice}={value}", f"{other}={values[0]}")
    if not networkx.is_directed_acyclic_graph(graph):
        cycle = [edge[0] for edge in networkx.find_cycle(graph)]
        raise _input_error(
            techniques, cycle[0].partition("=")[0], ("needs",), "a cycle of needs: " + " → ".join([*cycle, cycle[0]]),
            "leave one of them out",
        )  # fmt: skip


def _hint(word: str, known: Iterable[str]) -> str:
    """The nearest spelling, or all of them."""
    return nearest(word, known) or "one of " + ", ".join(known)


def _input_error(techniques: Techniques, choice: str, path: tuple[str, ...], message: str, hint: str) -> InputError:
    """An error placed at `path` of the file that defines `choice`."""
    return techniques.documents[choice].error(path, message, hint=hint)
