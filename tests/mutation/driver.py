"""Holds the tests against mutants of the modules that make memory, time and constraints, and writes the record.

`python -m tests.mutation.driver --record docs/quality.md` runs all; `--module planner/memory.py` one, naming survivors.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from tests.mutation.mutants import Mutant, mutants
from tests.mutation.runner import ROOT, SURVIVED, name_of, outcomes, prepare

# Module → the tests that are about it, quickest first.
TESTS: Mapping[str, tuple[str, ...]] = {
    "planner/memory.py": ("tests/test_memory_terms.py", "tests/test_memory.py"),
    "planner/step_time.py": ("tests/test_step_terms.py", "tests/test_step_time.py"),
    "planner/effect_terms.py": ("tests/test_effect_amounts.py", "tests/test_effect_terms.py"),
    "constraints/_memory.py": (
        "tests/constraints/test_gpu_memory_holds_every_phase.py",
        "tests/constraints/test_gpu_memory_leaves_the_headroom.py",
        "tests/constraints/test_host_memory_is_within_the_limit.py",
        "tests/constraints/test_nvme_holds_what_is_moved_there.py",
    ),
    "planner/exchange.py": ("tests/test_exchange_terms.py", "tests/test_exchange.py"),
}
REGISTRY = "tests/constraints/test_registry.py"
ENOUGH = 0.85
SECTION = "## Mutation\n"
REASONS = Path(__file__).with_name("survivors.yaml")


@dataclass
class Record:
    """What became of a module's mutants; `known` are survivors with a reason."""

    module: str
    counts: Counter[str] = field(default_factory=Counter)
    known: list[tuple[Mutant, str]] = field(default_factory=list)
    unknown: list[Mutant] = field(default_factory=list)

    @property
    def total(self) -> int:
        """All mutants."""
        return self.counts.total()

    @property
    def killed(self) -> int:
        """Those that a test noticed, by failing or by not ending."""
        return self.total - self.counts[SURVIVED]


def modules() -> tuple[str, ...]:
    """The modules that are mutated."""
    rules = (str(path.relative_to(ROOT)) for path in sorted((ROOT / "constraints").glob("*.py")))
    return tuple(dict.fromkeys((*sorted(module for module in TESTS if module.startswith("planner")), *rules)))


def tests_of(module: str) -> tuple[str, ...]:
    """The tests that are about a module; of a constraint the file of its name."""
    if module in TESTS:
        return TESTS[module]
    own = f"tests/constraints/test_{Path(module).name}"
    return (own, REGISTRY) if (ROOT / own).exists() else (REGISTRY,)


def run(module: str, workers: int) -> Record:
    """Tries all mutants of a module in this process, which imported nothing that depends on it.

    Raises RuntimeError where the tests fail without a change.
    """
    text, tests = (ROOT / module).read_text(encoding="utf-8"), tests_of(module)
    prepare(name_of(module))
    plain = Mutant(module, 0, "", "", "", text)
    if [outcome for _, outcome, _ in outcomes([(plain, tests)], 1)] != [SURVIVED]:
        raise RuntimeError(f"{' '.join(tests)} fail without a change of {module}")
    record, reasons = Record(module), _reasons(module)
    for mutant, outcome, _ in outcomes(((mutant, tests) for mutant in mutants(module, text)), workers):
        record.counts[outcome] += 1
        if outcome == SURVIVED:
            _keep(record, mutant, reasons)
    return record


def _keep(record: Record, mutant: Mutant, reasons: dict[str, list[str]]) -> None:
    """Notes a survivor; each reason explains one."""
    known = reasons.get(mutant.change)
    if known:
        record.known.append((mutant, known.pop()))
    else:
        record.unknown.append(mutant)


def _reasons(module: str) -> dict[str, list[str]]:
    """Why survivors of a module are none that a test should notice, by their change."""
    given: Mapping[str, Sequence[str]] = yaml.safe_load(REASONS.read_text(encoding="utf-8")).get(module, {})
    found: dict[str, list[str]] = {}
    for reason, changes in given.items():
        for change in changes:
            found.setdefault(change, []).append(reason)
    return found


def lines(record: Record) -> list[str]:
    """The outcome of a module as lines of text, survivors without a reason in full."""
    share = record.killed / record.total
    head = f"{record.module}: {record.killed} of {record.total} killed ({share:.0%}), {len(record.known)} explained"
    unknown = sorted(record.unknown, key=lambda mutant: mutant.line)
    return [head, *(f"  {mutant.line}  {mutant.change}" for mutant in unknown)]


def record_text(records: Iterable[Record]) -> str:
    """The records as a section of a document."""
    records = sorted(records, key=lambda record: modules().index(record.module))
    killed, total = sum(record.killed for record in records), sum(record.total for record in records)
    table = [
        SECTION,
        "`make mutation` changes one place of a module at a time (operators of mutmut) and runs the tests that are "
        f"about it: a test that bites fails. Of {total:,} changes {killed:,} were noticed ({killed / total:.1%}). Left "
        "out are changes of annotations and of imports, and those that break whatever runs them. One module: "
        "`.venv/bin/python -m tests.mutation.driver --module planner/memory.py`, which names each survivor; it fails "
        f"below {ENOUGH:.0%}. Survivors with a reason stand in `tests/mutation/survivors.yaml`.\n",
        "| module | mutants | killed | share | survivors with a reason | other survivors |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for record in records:
        table.append(
            f"| `{record.module}` | {record.total} | {record.killed} | {record.killed / record.total:.0%} | "
            f"{len(record.known)} | {len(record.unknown)} |"
        )
    return "\n".join([*table, "", *_survivors(records)]) + "\n"


def _survivors(records: Iterable[Record]) -> list[str]:
    """The survivors by module and reason."""
    told = []
    for record in records:
        reasons: dict[str, list[Mutant]] = {}
        for mutant, reason in sorted(record.known, key=lambda known: known[0].line):
            reasons.setdefault(reason, []).append(mutant)
        for mutant in record.unknown:
            reasons.setdefault("no test yet", []).append(mutant)
        for reason, found in reasons.items():
            changes = ", ".join(f"`{_short(mutant)}`" for mutant in found)
            told.append(f"* `{record.module}`: {reason}: {changes}.")
    return ["Survivors:", "", *told] if told else ["No mutant survived."]


def _short(mutant: Mutant) -> str:
    return mutant.change if len(mutant.change) <= 120 else mutant.change[:117] + "..."


def with_section(text: str, section: str) -> str:
    """A document with the section in the place of the one of the same name, or at the end."""
    before, found, after = text.partition(SECTION)
    rest = after.partition("\n## ") if found else ("", "", "")
    return before.rstrip("\n") + "\n\n" + section + (f"\n## {rest[2]}" if rest[1] else "")


def _in_a_process(module: str, workers: int) -> Record:
    """The record of a module, made by a fresh process: each imports other modules beforehand."""
    words = [sys.executable, "-m", "tests.mutation.driver", "--module", module, "--workers", str(workers), "--raw"]
    told = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
    given = yaml.safe_load(told)
    record = Record(module, Counter(given["counts"]))
    reasons = _reasons(module)
    for line, place, before, after in given["survivors"]:
        _keep(record, Mutant(module, line, place, before, after, ""), reasons)
    return record


def _raw(record: Record) -> str:
    """A record as text that `_in_a_process` reads."""
    survivors = [*(mutant for mutant, _ in record.known), *record.unknown]
    found = [[mutant.line, mutant.place, mutant.before, mutant.after] for mutant in survivors]
    return yaml.safe_dump({"counts": dict(record.counts), "survivors": found})


def main() -> None:
    """Runs one module or all; leaves with 1 where too few mutants are killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--module", action="append", choices=modules())
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--record", type=Path)
    parser.add_argument("--raw", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.module and given.record:
        parser.error("a record is of all modules")
    if given.raw:
        print(_raw(run(given.module[0], given.workers)))
        return
    records = []
    for module in given.module or modules():
        records.append(_in_a_process(module, given.workers))
        print("\n".join(lines(records[-1])), flush=True)
    if given.record is not None:
        text = given.record.read_text(encoding="utf-8") if given.record.exists() else "# Quality\n"
        given.record.write_text(with_section(text, record_text(records)), encoding="utf-8")
    killed, total = sum(record.killed for record in records), sum(record.total for record in records)
    sys.exit(0 if killed >= ENOUGH * total else 1)


if __name__ == "__main__":
    main()
