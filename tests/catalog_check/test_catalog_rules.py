"""Contradictions in files that somebody adds, each with the whole finding."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import run

from planner.catalog_check.checking import check_catalog

HEAD = "choice: state_compression\norder: 90\nsummary: how states are stored\ndefault: none\nvalues:\n"
NONE = "  none:\n    summary: as they are\n"
TRANSFER = "kind: transfer, name: states, link: host_link, direction: to_gpu, every: step, source: an example"
HALF = "kind: scale, book: gradients, factor: 1/2, source: an example"
EFFECT = "{kind: scale, book: optimizer_states, factor: 1/4, source: an example}"


def technique(body: str) -> str:
    """A choice with `none` and one more value."""
    return f"{HEAD}{NONE}  quarter:\n    summary: a quarter\n{body}"


def told(tmp_path: Path, text: str) -> list[tuple[str, int, str, str]]:
    """(severity, line, path, message) of what is found in a file beside the shipped catalog."""
    file = tmp_path / "added.yaml"
    file.write_text(text, encoding="utf-8")
    findings = check_catalog([file]).findings
    return [(found.severity, found.line, found.path, found.message) for found in findings if found.file == str(file)]


def test_a_technique_that_is_right(tmp_path: Path) -> None:
    text = technique(f"    needs: {{zero_stage: [1, 2, 3]}}\n    effects:\n      - {EFFECT}\n")
    assert told(tmp_path, text) == []


CONTRADICTIONS = {
    "a saving that the next effect takes back": (
        f"    effects:\n      - {EFFECT}\n      - {EFFECT.replace('1/4', '4')}\n",
        ("error", 12, "values.quarter.effects[1]",
         "scales optimizer_states by 4, which takes back what the effects before it save"),
    ),
    "two homes of one book": (
        "    effects:\n      - {kind: move, book: gradients, to: host, source: an example}\n"
        "      - {kind: move, book: gradients, to: nvme, source: an example}\n",
        ("error", 12, "values.quarter.effects[1]", "moves gradients to nvme, an effect before it to host"),
    ),
    "a value of another choice that is not there": (
        f"    effects:\n      - {{{HALF}, when: {{zero_stage: 4}}}}\n",
        ("error", 11, "values.quarter.effects[0].when.zero_stage", "unknown value of zero_stage: '4'"),
    ),
    "a name that is not there": (
        f"    effects:\n      - {{{HALF}, when: {{zero_stag: 2}}}}\n",
        ("error", 11, "values.quarter.effects[0].when.zero_stag", "unknown name in a condition 'zero_stag'"),
    ),
    "needs and conflicts": (
        "    needs: {zero_stage: [3]}\n    conflicts: {zero_stage: [3]}\n",
        ("error", 10, "values.quarter.needs.zero_stage", "needs and conflicts name the same values of zero_stage"),
    ),
    "a fact that there is not": (
        "    where: {nods: {at_least: 2}}\n",
        ("error", 10, "values.quarter.where.nods", "unknown name in a condition 'nods'"),
    ),
    "a part by a choice that is not there": (
        f"    effects:\n      - {{{TRANSFER}, bytes: 4, of: partition, part: {{choice: optimizer_on_gpus}}}}\n",
        ("error", 11, "values.quarter.effects[0].part.choice", "unknown choice 'optimizer_on_gpus'"),
    ),
    "its own choice": (
        "    needs: {state_compression: [none]}\n",
        ("error", 10, "values.quarter.needs.state_compression", "needs another value of its own choice"),
    ),
    "no source": (
        "    effects:\n      - {kind: scale, book: gradients, factor: 1/2}\n",
        ("error", 11, "values.quarter.effects[0]", "an effect without source"),
    ),
    "a quantity that is not there": (
        f"    effects:\n      - {{{TRANSFER}, bytes: 4, of: partitoin}}\n",
        ("error", 11, "values.quarter.effects[0].of", "unknown quantity 'partitoin'"),
    ),
    "bytes a thousand times too many": (
        f"    effects:\n      - {{{TRANSFER}, bytes: 4000, of: partition}}\n",
        ("error", 11, "values.quarter.effects[0].bytes",
         "the cost is 4000 bytes per element, plausible is 0.05 to 32"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", CONTRADICTIONS)
def test_a_contradiction_is_found(tmp_path: Path, what: str) -> None:
    body, expected = CONTRADICTIONS[what]
    assert expected in told(tmp_path, technique(body))


def test_a_negative_cost(tmp_path: Path) -> None:
    (finding,) = told(tmp_path, technique(f"    effects:\n      - {{{TRANSFER}, bytes: -4, of: partition}}\n"))
    assert finding[:3] == ("error", 11, "values.quarter.effects[0].bytes")


def second(body: str) -> str:
    """Another choice, whose value `yes` says something about the first."""
    head = "choice: second\norder: 91\nsummary: another\ndefault: 'no'\nvalues:\n  'no': {summary: not}\n"
    return f"{head}  'yes': {{summary: so, {body}}}\n"


def of_two(tmp_path: Path, body: str) -> list[str]:
    """Messages about `quarter`, which needs second=yes, and a second choice."""
    (tmp_path / "first.yaml").write_text(technique("    needs: {second: ['yes']}\n"), encoding="utf-8")
    (tmp_path / "second.yaml").write_text(second(body), encoding="utf-8")
    return [finding.message for finding in check_catalog([tmp_path]).findings]


def test_a_need_that_excludes_what_needs_it(tmp_path: Path) -> None:
    messages = of_two(tmp_path, "conflicts: {state_compression: [quarter]}")
    assert messages == ["needs second=yes, which excludes state_compression=quarter"]


def test_a_cycle_of_needs(tmp_path: Path) -> None:
    """quarter needs second=yes, which needs quarter."""
    (message,) = of_two(tmp_path, "needs: {state_compression: [quarter]}")
    assert message in (
        "a cycle of needs: state_compression=quarter → second=yes → state_compression=quarter",
        "a cycle of needs: second=yes → state_compression=quarter → second=yes",
    )


def test_a_default_that_is_no_value(tmp_path: Path) -> None:
    text = technique("").replace("default: none", "default: non")
    assert told(tmp_path, text) == [("error", 4, "default", "the default 'non' is no value of state_compression")]


def test_a_file_that_is_no_catalog(tmp_path: Path) -> None:
    assert told(tmp_path, "model: llama-2-7b\n") == [("error", 1, "", "holds nothing that a catalog has")]


def test_a_changed_copy_takes_the_place_of_the_shipped_file(tmp_path: Path) -> None:
    """The copy of nodes.yaml names a GPU that does not exist; line and hint say where and what."""
    shipped = Path(__file__).parents[2] / "catalogs" / "nodes.yaml"
    text = shipped.read_text(encoding="utf-8").replace("gpu: h200-sxm-141gb", "gpu: h200-sxm-144gb", 1)
    (tmp_path / "nodes.yaml").write_text(text, encoding="utf-8")
    (finding,) = check_catalog([tmp_path]).findings
    line = text[: text.index("h200-sxm-144gb")].count("\n") + 1
    assert (finding.file, finding.line) == (str(tmp_path / "nodes.yaml"), line)
    assert finding.message == "unknown GPU 'h200-sxm-144gb'"
    assert finding.hint == "did you mean 'h200-sxm-141gb'?"


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, output, _ = run(capsys, "catalog", "check")
    assert (code, output.partition(":")[2]) == (0, " ok (0 errors, 0 warnings)\n")
    file = tmp_path / "wrong.yaml"
    file.write_text(technique("    needs: {zero_stage: [7]}\n"), encoding="utf-8")
    code, output, _ = run(capsys, "catalog", "check", str(file), "--format", "json")
    answer = json.loads(output)
    assert (code, answer["severity"]) == (2, "error")
    assert answer["findings"] == [
        {
            "severity": "error", "file": str(file), "line": 10, "column": 25, "path": "values.quarter.needs.zero_stage",
            "message": "unknown value of zero_stage: '7'", "hint": "one of 0, 1, 2, 3",
        }
    ]  # fmt: skip


def test_a_path_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, output, error = run(capsys, "catalog", "check", str(tmp_path / "none.yaml"))
    assert (code, output) == (2, "")
    assert error == f"planner: {tmp_path / 'none.yaml'}: there is no such file; expected a YAML or JSON file\n"
