"""The mutants of a module: its text with one small change each, made by the operators of mutmut.

mutmut's own runner leaves decorated functions and constants of a module as they are, and takes what a cache holds from
before the change for an answer to it; so its operators are used alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import libcst
from libcst.metadata import CodeRange, MetadataWrapper, PositionProvider
from mutmut.mutation import mutators

# What changes no behaviour: annotations, imports, sizes of caches.
LEFT_OUT = (libcst.Annotation, libcst.Import, libcst.ImportFrom, libcst.Decorator)
# Calls whose arguments only repeat a type.
TYPED = ("isinstance", "len", "cast", "TypeVar")
# Operators of which most mutants fail wherever they are run (`x = None`), which would flatter the count.
COARSE = (mutators.operator_assignment, mutators.operator_lambda)


@dataclass(frozen=True)
class Mutant:
    """A changed text of a module: line and function of the change, what stood there and what stands there now."""

    module: str
    line: int
    place: str
    before: str
    after: str
    text: str

    @property
    def change(self) -> str:
        """The change in one line, whatever the number of its line."""
        return f"{self.place}: {self.before} → {self.after}"


def mutants(module: str, text: str) -> Iterator[Mutant]:
    """Every mutant of a module's text that is another program, outer changes first."""
    tree = MetadataWrapper(libcst.parse_module(text))
    positions, lines = tree.resolve(PositionProvider), text.splitlines(keepends=True)
    seen = {text}
    for node, name in _nodes(tree.module, "module"):
        for changed in _changed(node):
            place = positions[node]
            after = tree.module.code_for_node(changed)
            mutated = _spliced(lines, place, after)
            if mutated not in seen:
                seen.add(mutated)
                before = tree.module.code_for_node(node)
                yield Mutant(module, place.start.line, name, _words(before), _words(after), mutated)


def _changed(node: libcst.CSTNode) -> Iterator[libcst.CSTNode]:
    """What each operator makes of a node; of a string and of a call's arguments one change of several alike."""
    for kind, operator in mutators.mutation_operators:
        if not isinstance(node, kind) or operator in COARSE:
            continue
        found = list(operator(node))
        if operator is mutators.operator_string:
            found = found[:1]
        if operator is mutators.operator_arg_removal:
            found = found[-1:] if isinstance(node, libcst.Call) and len(node.args) > 1 else []
        yield from found


def _spliced(lines: list[str], place: CodeRange, code: str) -> str:
    """The text with other code in a place."""
    first, last = place.start, place.end
    before = "".join(lines[: first.line - 1]) + lines[first.line - 1][: first.column]
    return before + code + lines[last.line - 1][last.column :] + "".join(lines[last.line :])


def _words(code: str) -> str:
    """Code on one line."""
    return " ".join(code.split())


def _nodes(tree: libcst.CSTNode, name: str) -> Iterator[tuple[libcst.CSTNode, str]]:
    """The nodes that may be changed, outer ones first, with the name of the function or class around them."""
    for child in tree.children:
        if not _left_out(child):
            inner = child.name.value if isinstance(child, (libcst.FunctionDef, libcst.ClassDef)) else name
            yield child, inner
            yield from _nodes(child, inner)


def _left_out(node: libcst.CSTNode) -> bool:
    """Whether a node and all in it stay: what repeats a type, and docstrings."""
    if isinstance(node, libcst.Call) and isinstance(node.func, libcst.Name) and node.func.value in TYPED:
        return True
    alone = isinstance(node, libcst.Expr) and isinstance(node.value, (libcst.SimpleString, libcst.ConcatenatedString))
    return alone or isinstance(node, LEFT_OUT)
