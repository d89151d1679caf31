"""Names and kinds: unknown, removed, renamed or doubled keys, values of the wrong kind, and "auto"."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from planner.check.findings import ENGINE, PARSER, TRAINER, Finding, error, info, warn
from planner.check.inventory import Block, Key
from planner.check.kinds import FALSE, TRUE, Misfit, TooLarge, fit, quoted
from planner.check.spelling import hint
from planner.check.subject import AUTO, Subject

REMARKS = ("_", "comment", "//", "#", "$")
# Old names that are not turned into new ones, so that both may stand side by side.
NOT_CONVERTED = ("cpu_offload_use_pin_memory", "bfloat16")


def written(subject: Subject) -> Iterator[tuple[Block, str, str, Any]]:
    """(block, dotted key, name, value) of every key in a block that DeepSpeed knows."""
    for path, block in subject.inventory.blocks.items():
        if path == "bfloat16" and subject.raw("bf16") is not None:
            continue  # not read beside its new name
        for name, value in subject.block(path).items():
            yield block, f"{path}.{name}".lstrip("."), name, value


def known(subject: Subject) -> Iterator[tuple[Block, str, Key, Any]]:
    """(block, dotted key, key, value) of every known key that is written."""
    for block, dotted, name, value in written(subject):
        key = block.find(name)
        if key is not None:
            yield block, dotted, key, value


def removed_keys_are_gone(subject: Subject) -> Iterator[Finding]:
    """Refused even where the block is disabled."""
    for dotted, instead in subject.inventory.removed.items():
        if subject.has(dotted):
            version = subject.inventory.version
            yield error(
                dotted,
                f"was removed: DeepSpeed {version} refuses the file even where it is disabled; {instead}",
                PARSER,
            )


def names_are_known(subject: Subject) -> Iterator[Finding]:
    """Validated blocks refuse a name they do not know, the others skip it."""
    inventory = subject.inventory
    for block, dotted, name, value in written(subject):
        if block.find(name) or dotted in inventory.removed or block.unknown == "free":
            continue
        if block.unknown == "refused":
            refuses, by = ("Hugging Face", TRAINER) if value == AUTO else ("DeepSpeed", PARSER)
            yield error(dotted, f"unknown key: {refuses} refuses the file{hint(name, block, inventory)}", by)
        elif name.lower().startswith(REMARKS):
            yield info(dotted, "a remark: DeepSpeed skips it")
        else:
            yield warn(dotted, f"unknown key: DeepSpeed skips it without a word{hint(name, block, inventory)}")


def values_have_the_right_kind(subject: Subject) -> Iterator[Finding]:
    """A validated block refuses a wrong kind; elsewhere it fails where the value is used."""
    for block, dotted, key, value in known(subject):
        if (
            value == AUTO
            or (key.name == "bfloat16" and subject.raw("bf16") is not None)
            or (dotted == "zero_optimization" and isinstance(value, bool))
        ):
            continue
        if dotted == "expert_parallel" and not value:
            continue
        try:
            fit(key, value)
            loose = not block.validated and key.kind in ("number", "integer") and isinstance(value, str)
            if loose:
                yield _misfit(block, dotted, key, value, "a number without quotes")
        except TooLarge as problem:
            yield error(
                dotted, f"{quoted(value)} does not pass, expected {problem}: the run fails where it is used", ENGINE
            )
        except Misfit as problem:
            if not _is_truth(block, key, value):
                yield _misfit(block, dotted, key, value, str(problem))


def _misfit(block: Block, dotted: str, key: Key, value: Any, expected: str) -> Finding:
    """The finding on a value that does not pass."""
    parser = block.validated or key.checked or (key.kind == "block" and not key.late)
    fails = "DeepSpeed refuses the file" if parser else "the run fails where it is used"
    return error(dotted, f"{quoted(value)} does not pass, expected {expected}: {fails}", PARSER if parser else ENGINE)


def _is_truth(block: Block, key: Key, value: Any) -> bool:
    """Whether the value is only ever tested for being true, which the rule on texts speaks of."""
    return key.kind == "boolean" and not block.validated and not key.checked and isinstance(value, str)


def switches_are_no_text(subject: Subject) -> Iterator[Finding]:
    """Text counts as true where nobody converts it, also "false"."""
    for block, dotted, key, value in known(subject):
        if key.kind != "boolean" or not isinstance(value, str) or value == AUTO:
            continue
        meant = value.lower() in TRUE
        if not (meant or value.lower() in FALSE) and block.validated:
            continue
        if key.checked:
            yield error(
                dotted,
                f"text {quoted(value)} where a switch is combined with others: DeepSpeed refuses the file",
                PARSER,
            )
        elif block.validated or meant:
            yield warn(
                dotted,
                f"text {quoted(value)} passes for {str(meant).lower()} today; write {str(meant).lower()} without "
                "quotes",
            )
        else:
            yield error(
                dotted, f"text {quoted(value)} counts as true, as any text does; write true or false without quotes"
            )


def numbers_are_no_text(subject: Subject) -> Iterator[Finding]:
    """A validated block converts digits in quotes."""
    for block, dotted, key, value in known(subject):
        if (
            block.validated
            and key.kind in ("number", "integer")
            and isinstance(value, str)
            and value != AUTO
            and _fits(key, value)
        ):
            yield warn(dotted, f"text {quoted(value)} passes for a number today; write it without quotes")


def _fits(key: Key, value: Any) -> bool:
    """Whether the value passes."""
    try:
        fit(key, value)
    except Misfit:
        return False
    return True


def old_names_are_renamed(subject: Subject) -> Iterator[Finding]:
    """Converted with a warning; together with the new name refused."""
    for block, dotted, key, value in known(subject):
        if not key.deprecated:
            continue
        new = f"{block.path}.{key.deprecated}".lstrip(".")
        if subject.has(new) and key.name not in NOT_CONVERTED:
            yield error(dotted, f"stands beside {new}, its new name: DeepSpeed refuses both together", PARSER)
        elif key.name == "cpu_offload_use_pin_memory":
            yield warn(dotted, "is ignored; pin_memory in the offload blocks says it")
        elif subject.has(new):
            yield warn(dotted, f"is ignored beside {new}")
        elif not (key.kind == "boolean" and value in (False, None)):
            yield warn(dotted, f"is an old name that is still converted; write {new}")


def no_key_has_two_names(subject: Subject) -> Iterator[Finding]:
    """Both names of one key: the second is an extra that is refused."""
    for path, block in subject.inventory.blocks.items():
        for key in block.keys.values():
            if key.other_name and {key.name, key.other_name} <= set(subject.block(path)):
                yield error(
                    f"{path}.{key.other_name}",
                    f"is another name of {key.name}, which stands in the file too: DeepSpeed refuses both together",
                    PARSER,
                )


def auto_is_filled_in(subject: Subject) -> Iterator[Finding]:
    """Hugging Face fills in some keys and refuses the rest; DeepSpeed alone drops "auto" or stumbles over it."""
    for block, dotted, key, value in known(subject):
        if value != AUTO or key.own_auto:
            continue
        if key.trainer_auto:
            yield info(dotted, f'"auto" is left to the trainer; {_without_trainer(block, key)}')
        else:
            yield error(
                dotted,
                f'"auto" is filled in by nobody: Hugging Face refuses the file, {_without_trainer(block, key)}',
                TRAINER,
            )


def _without_trainer(block: Block, key: Key) -> str:
    """What DeepSpeed makes of "auto" on its own."""
    if block.validated:
        return f"DeepSpeed alone takes its default, {quoted(key.default)}"
    return "DeepSpeed alone refuses it" if key.checked else "DeepSpeed alone fails where it is used"


RULES = (
    removed_keys_are_gone,
    names_are_known,
    values_have_the_right_kind,
    switches_are_no_text,
    numbers_are_no_text,
    old_names_are_renamed,
    no_key_has_two_names,
    auto_is_filled_in,
)
