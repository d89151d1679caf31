"""The optimizer block: a type that exists, goes with ZeRO, and arguments that its class takes."""

from __future__ import annotations

from collections.abc import Iterator

from planner.check.findings import ENGINE, PARSER, Finding, error, info, warn
from planner.check.subject import Subject
from planner.units import nearest

TYPE = "optimizer.type"
# Classes that DeepSpeed chooses by itself, and the type that leads to them.
CHOSEN = {
    "deepspeedcpuadam": "Adam or AdamW", "fusedadam": "Adam or AdamW", "cpuadam": "Adam or AdamW",
    "zenflowcpuadam": "Adam or AdamW", "deepspeedcpulion": "Lion", "fusedlion": "Lion", "fusedlamb": "Lamb",
    "deepspeedcpuadagrad": "Adagrad", "adamw_torch": "AdamW", "adamw_hf": "AdamW", "adam_torch": "Adam",
}  # fmt: skip
ARGUMENTS = {"adam": "arguments_adam", "adamw": "arguments_adam", "lamb": "arguments_lamb", "lion": "arguments_lion"}


def type_exists(subject: Subject) -> Iterator[Finding]:
    """The parser takes any name; the engine asserts that it knows it."""
    found, names = subject.optimizer, subject.inventory.optimizers
    if found is None or found in (*names["deepspeed"], *names["torch"]):
        return
    plain = found.lower().replace("-", "").replace(" ", "")
    if plain in names["removed"]:
        hint = "1-bit optimizers were removed; take AdamW"
    elif plain in CHOSEN:
        hint = f"write {CHOSEN[plain]}, DeepSpeed picks the class itself"
    else:
        hint = (
            nearest(found, ["Adagrad", "Lamb", "Lion", *names["torch"]]) or "DeepSpeed or torch.optim has no such class"
        )
    yield error(TYPE, f"{found!r} is no optimizer: the engine refuses it; {hint}", ENGINE)


def type_goes_with_zero(subject: Subject) -> Iterator[Finding]:
    """ZeRO takes tested classes, and others only where the file allows it."""
    found, names = subject.optimizer, subject.inventory.optimizers
    if found is None or found in names["tested_with_zero"] or found not in (*names["deepspeed"], *names["torch"]):
        return
    if not subject.stage:
        yield info(TYPE, f"{found} is not tested with ZeRO: it needs zero_allow_untested_optimizer once a stage is set")
    elif not subject.raw("zero_allow_untested_optimizer"):
        yield error(
            TYPE,
            f"{found} is not tested with ZeRO: the engine refuses it without zero_allow_untested_optimizer",
            ENGINE,
        )
    else:
        yield info(TYPE, f"{found} is not tested with ZeRO; zero_allow_untested_optimizer lets it pass")


def lamb_scales_dynamically(subject: Subject) -> Iterator[Finding]:
    """Lamb asserts a dynamic loss scale."""
    if subject.optimizer == "lamb" and subject.value("fp16.loss_scale"):
        yield error("fp16.loss_scale", "Lamb needs a dynamic loss scale, 0: the engine refuses it", ENGINE)


def clipping_is_no_argument(subject: Subject) -> Iterator[Finding]:
    """max_grad_norm belongs at the top, as gradient_clipping."""
    norm = subject.raw("optimizer.params.max_grad_norm")
    if not subject.has("optimizer.params.max_grad_norm") or subject.raw(TYPE) is None:
        return
    if not isinstance(norm, (int, float)):
        yield error(
            "optimizer.params.max_grad_norm",
            "is no number: DeepSpeed refuses the file; write gradient_clipping",
            PARSER,
        )
        return
    yield error(
        "optimizer.params.max_grad_norm",
        f"is no optimizer argument: the engine refuses it; write gradient_clipping {norm:g}",
        ENGINE,
    )


def arguments_are_taken(subject: Subject) -> Iterator[Finding]:
    """Arguments go to the class as they are."""
    names = subject.inventory.optimizers.get(ARGUMENTS.get(subject.optimizer or "", ""))
    for name in subject.block("optimizer.params") if names else ():
        if names and name not in names and name != "max_grad_norm":
            hint = nearest(name, names)
            yield error(
                f"optimizer.params.{name}",
                f"{subject.optimizer} takes no such argument: the engine refuses it{'; ' + hint if hint else ''}",
                ENGINE,
            )


def params_have_a_type(subject: Subject) -> Iterator[Finding]:
    """Arguments without a type are skipped."""
    if subject.block("optimizer") and subject.raw(TYPE) is None:
        yield warn(TYPE, "not given: DeepSpeed skips the optimizer block")


def extra_libraries_are_there(subject: Subject) -> Iterator[Finding]:
    """The mu-parametrized optimizers come from another package."""
    if subject.optimizer in ("muadam", "muadamw", "musgd"):
        yield warn(TYPE, f"{subject.optimizer} needs the package mup")


RULES = (
    type_exists,
    type_goes_with_zero,
    lamb_scales_dynamically,
    clipping_is_no_argument,
    arguments_are_taken,
    params_have_a_type,
    extra_libraries_are_there,
)
