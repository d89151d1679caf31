"""Texts that are JSON, nearly JSON, and neither."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from files import FOLDER

from planner.check.text import Note, read_source, source
from planner.errors import InputError


@pytest.mark.parametrize(
    ("text", "data", "kinds"),
    [
        ('{"a": [1, 2.5, -3e8, true, null, "x\\n"]}', {"a": [1, 2.5, -3e8, True, None, "x\n"]}, []),
        ('{"a": 1, // one\n "b": 2, # two\n /* three */ "c": 3}', {"a": 1, "b": 2, "c": 3}, ["a comment"] * 3),
        ('{"a": [1, 2,],}', {"a": [1, 2]}, ["a trailing comma"] * 2),
        ("{a: 1}", {"a": 1}, ["a key without quotes"]),
        ('{"a": gpu zero\n}', {"a": "gpu zero"}, ["text without quotes"]),
        ("{'a': \"b\"}", {"a": "b"}, ["single quotes"]),
        ('{"a": 1\n "b": 2}', {"a": 1, "b": 2}, ["a missing comma"]),
        ('{"a": 1, "a": 2}', {"a": 2}, ["a duplicate key"]),
    ],
)
def test_what_is_read(text: str, data: object, kinds: list[str]) -> None:
    found = source("ds.json", text)
    assert found.data == data
    assert [note.kind for note in found.notes] == kinds


@pytest.mark.parametrize(
    ("text", "broken", "line"),
    [
        ("", "a value is missing", 1),
        ('{"a": 1', "'}' is missing at the end", 1),
        ('{\n"a" 1}', "':' is missing after 'a'", 2),
        ('{"a": "x" "b": 2}', "',' is missing", 1),
        ('{"a": "x}', "a quote is not closed", 1),
        ('{"a": 1}\n}', "more text follows the end", 2),
        ("[" * 100_000, "nested too deeply", 1),
    ],
)
def test_what_cannot_be_read(text: str, broken: str, line: int) -> None:
    found = source("ds.json", text)
    assert (found.data, found.broken, found.line) == (None, broken, line)


def test_lines_and_notes_name_their_place() -> None:
    found = source("ds.json", '{\n  "a": {\n    "b": 1,\n    "b": 2\n  }\n}')
    assert (found.line_of("a"), found.line_of("a.b"), found.line_of("c")) == (2, 4, 0)
    assert found.notes == (Note("a duplicate key", 4, "a.b"),)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("[0-3]*.json")), ids=lambda path: path.stem)
def test_plain_json_is_read_as_json_reads_it(path: Path) -> None:
    found = read_source(path)
    assert found.data == json.loads(found.text)
    assert (found.broken, found.notes) == ("", ())


def test_files_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "ds.json"
    with pytest.raises(InputError) as missing:
        read_source(path)
    assert str(missing.value) == f"{path}: there is no such file; expected a DeepSpeed JSON file"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(InputError) as binary:
        read_source(path)
    assert str(binary.value) == f"{path}: is not UTF-8 text; expected a DeepSpeed JSON file"


def test_a_number_of_thousands_of_digits_is_no_value() -> None:
    found = source("f.json", '{\n"a": ' + "9" * 5000 + "}")
    assert (found.data, found.broken, found.line) == (None, "a number of 5000 characters", 2)


def test_a_file_of_very_many_keys_is_no_configuration() -> None:
    text = "{" + ",\n".join(f'"a{number}": 1' for number in range(1001)) + "}"
    found = source("f.json", text)
    assert (found.data, found.broken, found.line) == (None, "there are more than 1000 keys", 1001)


def test_places_of_very_many_comments_are_found_in_one_pass() -> None:
    found = source("f.json", "//\n" * 100_000 + "{}")
    assert (len(found.notes), found.notes[-1].line) == (100_000, 100_000)
