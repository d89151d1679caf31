"""Files: what YAML and JSON mean here, their traps, the places of values, and models held against data."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

import pytest
import yaml

from planner import yaml_text
from planner.errors import InputError
from planner.fields import Bytes, Count, Record
from planner.reading import Document, read_document, validated


def message(file: str, text: str) -> str:
    with pytest.raises(InputError) as caught:
        read_document(file, text=text)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e9", 1e9),
        ("1.5e-3", 1.5e-3),
        (".5", 0.5),
        ("-3", -3),
        ("010", 10),
        ("0x10", 16),
        ("0o17", 15),
        ("true", True),
        ("False", False),
        ("no", "no"),
        ("on", "on"),
        ("yes", "yes"),
        ("1:30", "1:30"),
        ("7_000", "7_000"),
        ("2024-01-02", "2024-01-02"),
        ("0b11", "0b11"),
        ("'1'", "1"),
        ('"true"', "true"),
        ("~", None),
        ("", None),
        ("null", None),
        ("80 GiB", "80 GiB"),
    ],
)
@pytest.mark.parametrize("loader", ["fast", "pure"])
def test_yaml_scalars_mean_what_people_mean(
    text: str, value: object, loader: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if loader == "pure":
        monkeypatch.setattr(yaml_text, "_LOADER", yaml.SafeLoader)
    data = read_document("f.yaml", text=f"a: {text}\n").data
    assert data == {"a": value}
    assert type(data["a"]) is type(value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: 1\na: 2", "f.yaml:2:1: a: the key 'a' stands twice, first at 1:1; expected each key once"),
        (
            "- a\n- b: [1, {c: 2, c: 3}]",
            "f.yaml:2:17: [1].b[1].c: the key 'c' stands twice, first at 2:11; expected each key once",
        ),
        ("a:\n  1: x", 'f.yaml:2:3: a: the key 1 is not text; expected text as key; write "1"'),
        ("true: x", 'f.yaml:1:1: the key true is not text; expected text as key; write "true"'),
        ("~: x", 'f.yaml:1:1: the key ~ is not text; expected text as key; write "~"'),
        ("? [a]\n: 1", "f.yaml:1:3: a list or mapping stands as a key; expected text as key"),
        ("a: .inf", "f.yaml:1:4: a: .inf is not a finite number; expected a finite number"),
        ("a: [1, .NaN]", "f.yaml:1:8: a[1]: .NaN is not a finite number; expected a finite number"),
        ("a: 1e999", "f.yaml:1:4: a: 1e999 is too large for a number; expected a number below 1e308"),
        ("a: " + "9" * 200, "f.yaml:1:4: a: a number of 200 characters; expected at most 100 characters"),
        (
            "a: !!python/object:os.system x",
            "f.yaml:1:4: a: the tag 'tag:yaml.org,2002:python/object:os.system' is not taken; "
            "expected plain values without tags",
        ),
        ("a: !x [1]", "f.yaml:1:4: a: the tag '!x' is not taken; expected plain values without tags"),
        ("---\na: 1\n---\nb: 2", "f.yaml:3:1: a second document starts here; expected one document in a file"),
        ("a: &x [*x]", "f.yaml:1:8: a[0]: the alias *x contains itself; expected an alias of something complete"),
        ("a: *x", "f.yaml:1:4: a: the alias *x has no anchor before it; expected &x further up"),
        ("a: *" + "x" * 90, f"f.yaml:1:4: a: the alias *{'x' * 60}... has no anchor before it; "
         f"expected &{'x' * 60}... further up"),
        (
            "a: &x {b: 1}\nc:\n  <<: *x",
            "f.yaml:3:3: c: the merge key << is not taken; expected the merged keys written out",
        ),
        ("[a, b", "f.yaml:2:1: not valid YAML: did not find expected ',' or ']'"),
        ("a: b: c", "f.yaml:1:5: not valid YAML: mapping values are not allowed in this context; "
            "put text with such characters in quotes"),
        (
            "a:\n\tb: 1",
            "f.yaml:2:1: not valid YAML: found character that cannot start any token; indent with spaces, not tabs",
        ),
        (
            "a: @b",
            "f.yaml:1:4: not valid YAML: found character that cannot start any token; put the text in quotes",
        ),
        ("", "f.yaml: the file is empty; expected a mapping"),
        ("# only a comment\n", "f.yaml: the file holds nothing; expected a mapping"),
        ("a: 'x\x01'", "f.yaml:1:6: the character U+0001 is not text; expected printable text"),
        ("[" * 65, "f.yaml:1:65: nested too deeply; expected at most 64 levels"),
        ("{" * 50_000, "f.yaml:1:1001: nested too deeply; expected at most 64 levels"),
    ],
)
def test_yaml_traps_are_refused_with_their_place(text: str, expected: str) -> None:
    if not hasattr(yaml, "CSafeLoader") and "not valid YAML" in expected:
        pytest.skip("the wording is that of libyaml")
    assert message("f.yaml", text) == expected


def test_aliases_are_read_until_they_multiply() -> None:
    document = read_document("f.yaml", text="a: &x {b: 1}\nc: *x\n")
    assert document.data == {"a": {"b": 1}, "c": {"b": 1}}
    assert document.mark(("c", "b")) == (2, 4)  # the nearest place in the file
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    # a0 has 11 nodes, a1 1 + 10 * 11 = 111, a2 1111: 110 + 1110 + 8 * 1111 = 10108 at the eighth alias of a3
    assert message("f.yaml", "\n".join(lines)) == (
        "f.yaml:4:45: a3[7]: the aliases multiply the document; expected at most 10000 values through aliases"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a": 1,\n "a": 2}', "f.json:2:2: a: the key 'a' stands twice, first at 1:2; expected each key once"),
        ('{"a": NaN}', "f.json:1:7: a: not valid JSON: 'NaN' stands here; expected a value"),
        ('{"a": -Infinity}', "f.json:1:7: a: not valid JSON: '-Infinity' stands here; expected a value"),
        ('{"a": 1e999}', "f.json:1:7: a: 1e999 is too large for a number; expected a number below 1e308"),
        ('{"a": 1,}', "f.json:1:8: a comma stands before the end; expected no comma after the last item"),
        ('{"a" 1}', "f.json:1:6: a: not valid JSON: '1' stands here; expected ':' after the key"),
        ("[1 2]", "f.json:1:4: [1]: not valid JSON: '2' stands here; expected ',' or ']'"),
        ('{"a": 1]', "f.json:1:8: not valid JSON: ']' stands here; expected ',' or '}'"),
        ('{"a": 1', "f.json:1:8: not valid JSON: the end of the file stands here; expected ',' or '}'"),
        ('{"a": 1} x', "f.json:1:10: not valid JSON: 'x' stands here; expected the end of the file"),
        (
            '{"a": // b\n 1}',
            "f.json:1:7: a: not valid JSON: '//' stands here; expected a value; JSON has no comments",
        ),
        ("{a: 1}", "f.json:1:2: not valid JSON: 'a' stands here; expected a key in double quotes"),
        ('{"a": 01}', "f.json:1:7: a: not valid JSON: '01' stands here; expected a value"),
        ('{"a": "x', "f.json:1:7: a: the text in quotes is not valid; expected text ended by a double quote"),
        ('{"a": "\\ud800"}', "f.json:1:7: a: half a character (a lone surrogate); expected whole characters"),
        ("[" * 70_000, "f.json:1:65: nested too deeply; expected at most 64 levels"),
        ("", "f.json: the file is empty; expected a mapping"),
    ],
)
def test_json_mistakes_have_their_place(text: str, expected: str) -> None:
    assert message("f.json", text) == expected


def test_json_and_yaml_know_the_place_of_every_value_and_key() -> None:
    text = '{\n  "a": [1, {"b": "\\u00e9\\n"}],\n\t"c": {}, "d": [], "e": [-1.5e3, true, null]\n}\n'
    document = read_document("f.json", text=text)
    assert document.data == {"a": [1, {"b": "é\n"}], "c": {}, "d": [], "e": [-1500.0, True, None]}
    assert document.mark(("a", 1, "b")) == (2, 18)
    assert document.key_mark(("a", 1, "b")) == (2, 13)
    assert document.mark(("a", 7, "x")) == (2, 8)
    block = read_document("f.yaml", text="a:\n  - 1\n  - b: x\n")
    assert (block.mark(("a", 1, "b")), block.key_mark(("a", 1, "b"))) == ((3, 8), (3, 5))


def test_byte_order_mark_and_carriage_returns_do_not_move_places(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_bytes(b"\xef\xbb\xbfa: 1\r\nb:\r\n  c: 2\r\n")
    document = read_document(file)
    assert document.data == {"a": 1, "b": {"c": 2}}
    assert document.key_mark(("a",)) == (1, 1)
    assert document.mark(("b", "c")) == (3, 6)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_bytes(b"a: 1\nb: \xff\n")

    def refused(path: str | os.PathLike[str], maximum_bytes: int = 1000) -> str:
        with pytest.raises(InputError) as caught:
            read_document(path, maximum_bytes=maximum_bytes)
        return str(caught.value).replace(str(tmp_path), "DIR")

    kind = "expected a YAML or JSON file"
    assert refused(tmp_path) == f"DIR: this is a directory; {kind}"
    assert refused(tmp_path / "jobs.yaml") == (
        f"DIR/jobs.yaml: there is no such file; {kind}; did you mean 'job.yaml'?"
    )
    assert refused(tmp_path / "nowhere" / "job.yaml") == f"DIR/nowhere/job.yaml: there is no such file; {kind}"
    assert refused("a\0b") == f"a\0b: cannot be read: not a file name; {kind}"
    assert refused(tmp_path / "job.yaml") == "DIR/job.yaml:2:4: not UTF-8 text; expected text in UTF-8"
    assert refused(tmp_path / "job.yaml", maximum_bytes=4) == (
        "DIR/job.yaml: the file is too large; expected at most 4 bytes"
    )


@pytest.mark.parametrize("name", ["f.yaml", "f.json"])
def test_files_of_very_many_values_are_refused(name: str) -> None:
    """50,000 are taken: a list and 49,999 numbers."""
    assert len(read_document(name, text="[" + "1," * 49_998 + "1]").data) == 49_999
    assert message(name, "[" + "1," * 49_999 + "1]") == (
        f"{name}:1:100000: too many values; expected at most 50000 in a file"
    )


def test_long_names_and_tags_are_cut_in_messages() -> None:
    text = f"{'a' * 300}: 1\n{'a' * 300}: 2\n"
    assert len(message("f.yaml", text)) < 300


class Part(Record):
    name: str
    size: Bytes
    kind: Literal["fast", "slow"] = "fast"


class Whole(Record):
    parts: dict[str, Part]
    first: Part | None = None
    layers: Count = 1
    mixed: int | list[int] | Part = 0
    ratio: float = 0.0
    labels: tuple[str, ...] = ()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "layer: 1",
            "2:1: layer: unknown key 'layer'; expected one of parts, first, layers, mixed, ratio, labels; "
            "did you mean 'layers'?",
        ),
        ("layers: 0", "2:9: layers: 0 is zero; expected a whole number such as 4096, 7e9 or 7B"),
        (
            "first: {nam: x, size: 1 B}",
            "2:9: first.nam: unknown key 'nam'; expected one of name, size, kind; did you mean 'name'?",
        ),
        ("first: {name: x}", "2:8: first.size: missing key 'size'"),
        ("first: {name: 5, size: 1 B}", "2:15: first.name: 5 is a number; expected text"),
        (
            "first: {name: x, size: 1 B, kind: fats}",
            "2:35: first.kind: 'fats' is not valid; expected one of fast, slow; did you mean 'fast'?",
        ),
        ("first: 3", "2:8: first: 3 is a number; expected a mapping"),
        ("mixed: x", "2:8: mixed: 'x' is text; expected a whole number or a list or a mapping"),
        ("mixed: [1, x]", "2:12: mixed[1]: 'x' is text; expected a whole number"),
        (
            "mixed: {name: x, size: 5 GIB}",
            "2:24: mixed.size: '5 GIB' has the unknown unit 'GIB'; "
            "expected a memory size such as 80 GiB; did you mean 'GiB'?",
        ),
        ("ratio: high", "2:8: ratio: 'high' is text; expected a number"),
        ("labels: [a, 2]", "2:13: labels[1]: 2 is a number; expected text"),
        ("labels: a", "2:9: labels: 'a' is text; expected a list"),
    ],
)
def test_the_mistake_that_explains_most(line: str, expected: str) -> None:
    document = read_document("f.yaml", text=f"parts: {{a: {{name: x, size: 1 GiB}}}}\n{line}\n")
    with pytest.raises(InputError) as caught:
        validated(Whole, document)
    assert str(caught.value) == f"f.yaml:{expected}"


def test_a_subtree_is_validated_with_its_own_places() -> None:
    document = read_document("f.yaml", text="parts:\n  a: {name: x, size: 2 KiB}\n  b: {name: x, size: 2}\n")
    assert validated(Part, document, ("parts", "a")).size == 2048
    with pytest.raises(InputError) as caught:
        validated(Part, document, ("parts", "b"))
    assert str(caught.value) == "f.yaml:3:22: parts.b.size: 2 has no unit; expected a memory size such as 80 GiB"
    with pytest.raises(InputError) as caught:
        validated(Part, document, ("prts",))
    assert str(caught.value) == "f.yaml:1:1: prts: missing key 'prts'; did you mean 'parts'?"


def test_keys_that_do_not_print_are_shown_in_quotes() -> None:
    document: Document = read_document("f.yaml", text='"\\e[31m": 1\n')
    with pytest.raises(InputError) as caught:
        validated(Whole, document)
    expected: Any = "f.yaml:1:1: '\\x1b[31m': unknown key '\\x1b[31m'; expected one of parts, first, layers, mixed, "
    assert str(caught.value) == expected + "ratio, labels"
