"""The documents name what there is, and every command line in the README runs."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

import constraints
from planner.cli import cli, main
from planner.effects import EFFECT_KINDS
from planner.quantities import BY_NAME
from planner.techniques import RuntimeEntry, read_techniques

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
# Lines that start ranks are run in tests/integration.
LINES = [line for line in re.findall(r"^planner .*$", README, flags=re.MULTILINE) if "# needs torch" not in line]


@pytest.mark.parametrize("line", LINES)
def test_readme_command_runs(line: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """From the root of the checkout; what it writes goes elsewhere. A comment says another exit code than 0."""
    monkeypatch.chdir(ROOT)
    command, _, comment = line.partition("#")
    words = [str(tmp_path / "out") if word.startswith("plans/") else word for word in shlex.split(command)[1:]]
    expected = re.search(r"exits with (\d+)", comment)
    with pytest.raises(SystemExit) as leaving:
        main(words)
        raise SystemExit(0)
    assert leaving.value.code == (int(expected.group(1)) if expected else 0)


def test_the_readme_tells_the_errors_of_the_accuracy_page() -> None:
    page = (ROOT / "docs" / "accuracy.md").read_text(encoding="utf-8")
    told = re.search(r"median of sources (\S+) % for memory and (\S+) % for step time", page)
    assert told is not None
    assert f"{told[1]} % for memory and {told[2]} % for step time (median of sources)" in " ".join(README.split())


def test_commands_are_documented() -> None:
    text = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    names = [name for name in cli.commands if name != "catalog"] + ["catalog list", "catalog show", "catalog check"]
    assert [name for name in names if f"`planner {name}" not in text] == []


def test_constraints_are_documented() -> None:
    text = (ROOT / "docs" / "constraints.md").read_text(encoding="utf-8")
    assert [name for name in constraints.NAMES if f"`{name}`" not in text] == []


def test_choices_and_effect_kinds_are_documented() -> None:
    text = (ROOT / "docs" / "techniques.md").read_text(encoding="utf-8")
    kinds = [kind.model_fields["kind"].annotation.__args__[0] for kind in EFFECT_KINDS]
    assert [name for name in (*kinds, *read_techniques().choices) if f"`{name}`" not in text] == []


def test_quantities_and_facts_of_runtimes_are_documented() -> None:
    text = (ROOT / "docs" / "techniques.md").read_text(encoding="utf-8")
    said = {"runtime", "version", "summary", "source", "effects", "choices"}
    facts = [name for name in RuntimeEntry.model_fields if name not in said and not name.endswith("_source")]
    assert [name for name in (*BY_NAME, *facts) if f"| `{name}` |" not in text] == []


def test_the_choices_that_a_quantity_reads_are_documented() -> None:
    text = (ROOT / "docs" / "techniques.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \| .* \| (.*)\|$", text, flags=re.MULTILINE))
    reads = {name: " ".join(f"`{choice}`" for choice in quantity.reads) for name, quantity in BY_NAME.items()}
    assert {name: rows[name].strip() for name, told in reads.items() if told} == {n: r for n, r in reads.items() if r}


def test_the_documented_technique_can_be_added(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "techniques.md").read_text(encoding="utf-8")
    block = re.findall(r"```yaml\n(.*?)```", text, flags=re.DOTALL)[-1]
    assert yaml.safe_load(block)["choice"] == "state_compression"
    path = tmp_path / "state_compression.yaml"
    path.write_text(block, encoding="utf-8")
    arguments = ["solve", str(ROOT / "examples" / "llama-2-7b-8xa100.yaml"), "--catalog", str(path), "--format", "json"]
    answer = CliRunner().invoke(cli, arguments)
    assert answer.exit_code == 0
    assert '"state_compression"' in answer.output
