"""Runs tests on mutants: one process imports what does not depend on the mutated module, and each mutant gets a fork.

What is imported before the fork knows nothing of the mutated module, so that no cache holds an answer from before the
change; reading of catalogs, pydantic and the solver stand ready.
"""

from __future__ import annotations

import ast
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import ModuleType

from tests.mutation.mutants import Mutant

ROOT = Path(__file__).parents[2]
# Of the processor; what runs longer has lost its end.
SECONDS = 60
SURVIVED, KILLED, TIMEOUT = "survived", "killed", "timeout"


def name_of(path: str) -> str:
    """The name under which a file is imported."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def dependents(target: str) -> set[str]:
    """The modules that import a module when they are loaded, or import one that does, itself included."""
    graph = {name_of(str(path.relative_to(ROOT))): _imported(path) for path in _files()}
    found = {target}
    while more := {name for name, names in graph.items() if names & found and name not in found}:
        found |= more
    return found


def _files() -> Iterator[Path]:
    for folder in ("planner", "constraints", "tests"):
        yield from (ROOT / folder).rglob("*.py")


def _imported(path: Path) -> set[str]:
    """Names that the statements of a file import at once; of `from a import b` both a and a.b."""
    found: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
    return found


class _Changed(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Loads one module from a text."""

    def __init__(self, mutant: Mutant) -> None:
        self.name, self.path, self.text = name_of(mutant.module), str(ROOT / mutant.module), mutant.text

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The module's own specification, and nobody else's."""
        if name != self.name:
            return None
        package = [str(Path(self.path).parent)] if self.path.endswith("__init__.py") else None
        return importlib.util.spec_from_file_location(
            name, self.path, loader=self, submodule_search_locations=package
        )  # fmt: skip

    def exec_module(self, module: ModuleType) -> None:
        """Runs the text in the module."""
        exec(compile(self.text, self.path, "exec"), module.__dict__)


def prepare(target: str) -> None:
    """Imports everything that does not depend on the module, and reads the catalogs where that needs it not."""
    kept_out = dependents(target)
    for name in ("pytest", "numpy", "pydantic", "yaml", "networkx", "hypothesis", "ortools.sat.python.cp_model"):
        importlib.import_module(name)
    for path in sorted((ROOT / "planner").glob("*.py")):
        name = name_of(str(path.relative_to(ROOT)))
        if name not in kept_out and name != "planner.__main__":
            importlib.import_module(name)
    if "planner.resolve" not in kept_out:
        _read_catalogs()
    already = sorted(kept_out & sys.modules.keys())
    assert not already, f"imported before the change: {already}"


def _read_catalogs() -> None:
    """Fills the caches of files and of what is read of them."""
    from planner import hardware_catalog as catalog
    from planner.techniques import read_runtime, read_techniques

    for read in (catalog.shipped, catalog.precisions, catalog.optimizers, read_techniques):
        read()
    for runtime in sorted((ROOT / "catalogs" / "runtimes").glob("*.yaml")):
        read_runtime(runtime.stem)


def outcomes(waiting: Iterable[tuple[Mutant, Sequence[str]]], workers: int) -> Iterator[tuple[Mutant, str, float]]:
    """(mutant, outcome, seconds of the clock) of each mutant with its tests, as they end."""
    running: dict[int, tuple[Mutant, float]] = {}
    for mutant, tests in waiting:
        if len(running) == workers:
            yield _ended(running)
        child = _forked(lambda mutant=mutant, tests=tests: _tested(mutant, tests))  # type: ignore[misc]
        running[child] = mutant, time.monotonic()
    while running:
        yield _ended(running)


def _ended(running: dict[int, tuple[Mutant, float]]) -> tuple[Mutant, str, float]:
    """Waits for one of the children."""
    child, status = os.wait()
    mutant, start = running.pop(child)
    ended = SURVIVED if os.waitstatus_to_exitcode(status) == 0 else KILLED
    return mutant, TIMEOUT if os.WIFSIGNALED(status) else ended, time.monotonic() - start


def _forked(work: Callable[[], int]) -> int:
    """The process of a child that ends with the number that its work returns."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        code = work()
    except BaseException:  # whatever a mutant does, the child must not go on as its parent
        code = 1
    os._exit(code)


def _tested(mutant: Mutant, tests: Sequence[str]) -> int:
    """0 where all tests pass with the mutant, which is silent about it."""
    import pytest

    quiet = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(quiet, stream)
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    signal.alarm(SECONDS * 10)
    sys.meta_path.insert(0, _Changed(mutant))
    return int(pytest.main(["-x", "-q", "--no-header", "--tb=no", "-p", "no:cacheprovider", *tests]))
