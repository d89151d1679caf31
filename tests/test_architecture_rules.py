"""The shape of the code: who imports whom, no cycles, and a vocabulary that is used."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from planner.effects import EFFECT_KINDS, Allocate, AnyEffect, Collective, Transfer, Update
from planner.quantities import BY_NAME
from planner.techniques import read_runtime, read_techniques

ROOT = Path(__file__).parents[1]
PACKAGES = ("planner", "constraints")


@lru_cache(maxsize=1)
def modules() -> dict[str, ast.Module]:
    """Every module of the packages, parsed, by dotted name."""
    found = {}
    for package in PACKAGES:
        for file in sorted((ROOT / package).rglob("*.py")):
            parts = file.relative_to(ROOT).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            found[name] = ast.parse(file.read_text(encoding="utf-8"))
    return found


def statements(tree: ast.AST, inside_functions: bool) -> Iterator[ast.Import | ast.ImportFrom]:
    """The import statements that run; those inside functions only if asked for, those for type checkers never."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield node
        elif isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            continue
        elif inside_functions or not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            yield from statements(node, inside_functions)


def imported(name: str, inside_functions: bool = True) -> set[str]:
    """Dotted names of what a module imports; submodules where a package's parts are named."""
    found: set[str] = set()
    for node in statements(modules()[name], inside_functions):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
            continue
        assert node.level == 0, f"{name} imports relatively"
        source = node.module or ""
        parts = {f"{source}.{alias.name}" for alias in node.names}
        found |= {part if part in modules() else source for part in parts}
    return found


def importers(package: str) -> set[str]:
    """Modules that import a package or a part of it, wherever in the file."""
    return {
        name for name in modules() if any(found.partition(".")[0] == package for found in imported(name))
    }


def test_one_module_imports_the_solver() -> None:
    assert importers("ortools") == {"planner.compile"}


def test_the_planner_meets_the_constraints_where_they_meet() -> None:
    """Where rules are gathered and where a plan is held to them; both inside a function."""
    meeting = {name for name in importers("constraints") if name.startswith("planner")}
    assert meeting <= {"planner.specification", "planner.evaluate"}
    for name in meeting:
        assert not any(found.startswith("constraints") for found in imported(name, inside_functions=False)), name


def test_constraints_know_no_solver_and_no_search() -> None:
    unwanted = {f"planner.{name}" for name in ("compile", "search", "points", "specification", "evaluate", "cli")}
    for name in modules():
        if name.startswith("constraints"):
            assert not imported(name) & unwanted, name


def test_formulas_know_no_solver() -> None:
    formulas = ("terms", "plan", "choices", "effects", "effect_terms", "quantities", "memory", "step_time", "compute")
    for name in formulas:
        assert not imported(f"planner.{name}") & {"planner.compile", "planner.search", "planner.points"}, name


def test_there_is_no_import_cycle() -> None:
    """Imports that run when a module is loaded; an import of a package's part also loads the package."""
    graph = {
        name: {found for found in imported(name, inside_functions=False) if found in modules() and found != name}
        for name in modules()
    }
    try:
        list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail("import cycle: " + " → ".join(reversed(error.args[1])))


@pytest.mark.parametrize("library", ["ortools", "torch", "transformers", "networkx", "rich"])
def test_heavy_libraries_load_on_demand(library: str) -> None:
    """No module but the solver's own loads them at its top."""
    tops = {
        name
        for name in modules()
        if any(found.partition(".")[0] == library for found in imported(name, inside_functions=False))
    }
    assert tops <= {"planner.compile"}


# ── the vocabulary ───────────────────────────────────────────────────────────────────────────────────────────────────


@lru_cache(maxsize=1)
def shipped_effects() -> tuple[AnyEffect, ...]:
    """Every effect of every shipped runtime and technique."""
    names = sorted(file.stem for file in (ROOT / "catalogs" / "runtimes").glob("*.yaml"))
    found = [effect for name in names for effect in read_runtime(name).effects]
    for choice in read_techniques().choices.values():
        found += [*choice.effects, *(effect for value in choice.values.values() for effect in value.effects)]
    return tuple(found)


def documented() -> str:
    """The text of the documents."""
    return "\n".join(file.read_text(encoding="utf-8") for file in sorted((ROOT / "docs").rglob("*.md")))


def test_every_kind_of_effect_is_used_or_documented() -> None:
    used = {type(effect) for effect in shipped_effects()}
    text = documented()
    for kind in EFFECT_KINDS:
        (name,) = kind.model_fields["kind"].annotation.__args__  # type: ignore[union-attr]
        assert kind in used or f"`{name}`" in text, name


def test_every_quantity_is_used_or_documented() -> None:
    used: set[str] = set()
    for effect in shipped_effects():
        if isinstance(effect, (Allocate, Collective, Transfer, Update)):
            used.add(effect.of)
        used |= {getattr(effect, field) for field in ("message", "ahead", "calls") if getattr(effect, field, "")}
    assert used <= set(BY_NAME)
    text = documented()
    assert [name for name in BY_NAME if name not in used and f"`{name}`" not in text] == []


def test_every_effect_has_a_source() -> None:
    assert [effect for effect in shipped_effects() if not effect.source] == []
