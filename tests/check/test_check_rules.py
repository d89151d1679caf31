"""Each rule on the smallest file where it bites: severity, key and whole message; notes are left out.

The cases are `tests/data/check_rules.json`: by name the file, as a mapping or as its text, and what is said of it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from files import grave, zero

DATA = Path(__file__).parents[1] / "data" / "check_rules.json"
CASES: dict[str, dict[str, Any]] = json.loads(DATA.read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", CASES)
def test_what_a_rule_says(case: str) -> None:
    assert grave(CASES[case]["file"]) == CASES[case]["says"]


def test_a_sound_file_has_notes_only() -> None:
    for stage in (1, 2, 3):
        assert grave(zero(stage)) == []
