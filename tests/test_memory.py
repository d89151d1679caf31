"""What adapters and a quantized base change in the books."""

from __future__ import annotations

from planner.ledger import ledger
from planner.plan import Layout
from planner.share import share
from tests.jobs import job, plan

LORA = {"method": {"lora": {"rank": 4}}}
QLORA = {"method": {"qlora": {"rank": 4}}}


def books(method: dict[str, object], **values: object) -> dict[str, dict[str, int]]:
    """Lines of the optimizer step on the GPU, by book."""
    found = job(training=method)
    moment = {m.name: m for m in ledger(found, plan(found, **values))["gpu"].moments}["optimizer_step"]
    lines: dict[str, dict[str, int]] = {}
    for line in moment.lines:
        lines.setdefault(line.book, {})[line.name] = line.bytes
    return lines


def test_only_adapters_have_gradients_and_states() -> None:
    """Stage 0, 16 bit: 2 bytes for each parameter, 2 + 8 of gradients and 4 + 8 of states for each adapter element."""
    found = job(training=LORA)
    total, adapters = found.architecture.parameters, found.trainable_parameters
    lines = books(LORA, zero_stage=0)
    assert lines["parameters"] == {"parameters": 2 * total}
    assert sum(lines["gradients"].values()) == (2 + 8) * adapters
    assert sum(lines["optimizer_states"].values()) == (4 + 8) * adapters


def test_stage_2_keeps_frozen_weights_whole_and_stage_3_divides_them() -> None:
    found = job(training=LORA)
    total = found.architecture.parameters
    assert books(LORA, zero_stage=2)["parameters"]["parameters"] == 2 * total
    assert books(LORA, zero_stage=3)["parameters"]["parameter shards"] == total  # 2 bytes over 2 ranks


def test_a_quantized_base_takes_about_half_a_byte() -> None:
    """0.51587 bytes for each weight of the linear layers, 2 for everything else."""
    found = job(training=QLORA)
    lines = books(QLORA, zero_stage=0)["parameters"]
    quantized = share(found, Layout(data=2)).quantized
    assert lines["parameters"] == 2 * (found.architecture.parameters - quantized)
    assert lines["4-bit base"] == -(-quantized * 51587 // 100000)


def test_autocast_caches_the_weights_of_checkpointed_layers() -> None:
    """Four layers checkpointed: two bytes for each weight of their linear layers until the forward pass ends."""
    found = job(training={"runtime": "ddp"})
    moments = {m.name: m for m in ledger(found, plan(found, checkpoint_count=4, checkpoint_interval=1))["gpu"].moments}
    names = ("forward", "loss", "backward_end")
    lines = {name: {line.name: line.bytes for line in moments[name].lines} for name in names}
    kind = found.layer_kinds[0]
    matrices = sum(tensor.elements for tensor in kind.tensors if len(tensor.shape) == 2)
    name = "16-bit weights cached by autocast"
    assert lines["forward"][name] == lines["loss"][name] == 4 * 2 * matrices
    assert name not in lines["backward_end"]
