"""What `planner check` says the parser refuses, against the parser: on real files, and on files with one change."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deepspeed")

from deepspeed_parser import parse

from planner.check.inventory import Key, inventory
from planner.check.registry import findings
from planner.check.subject import Subject
from planner.check.text import source

FOLDER = Path(__file__).parents[1] / "data" / "ds_configs"
# What a trainer fills in for one sequence at once, two steps and eight ranks.
FILLED = {
    "train_batch_size": 16,
    "train_micro_batch_size_per_gpu": 1,
    "gradient_accumulation_steps": 2,
    "gradient_clipping": 1.0,
}
VALUES: tuple[Any, ...] = (
    "true", "5", "5e8", "x", True, False, None, 0, -1, 1, 2.0, 2.5, 1e9, [], ["a"], {}, {"a": 1}, "cpu", "FP32",
)  # fmt: skip
CHANGES = 400


def filled(content: dict[str, Any]) -> dict[str, Any]:
    """The content with what the trainer fills in."""
    return content | {name: value for name, value in FILLED.items() if content.get(name) == "auto"}


def readable() -> dict[str, dict[str, Any]]:
    """The files that are JSON, by name."""
    found = {}
    for path in sorted(FOLDER.glob("*.json")):
        read = source(path.name, path.read_text(encoding="utf-8"))
        if not read.broken:
            found[path.stem] = filled(read.data)
    return found


def refused(content: dict[str, Any]) -> str:
    """Why the parser refuses a content on eight ranks, empty where it does not."""
    try:
        parse(content, world=8)
    except Exception as problem:
        return f"{type(problem).__name__}: {problem}"
    return ""


def said(content: dict[str, Any]) -> list[str]:
    """What is said to be refused by the parser."""
    found = findings(Subject(source("ds.json", json.dumps(content)), 8))
    return [f"{item.key}: {item.message}" for item in found if item.refused_by == "parser"]


@pytest.mark.parametrize("name", readable())
def test_the_parser_refuses_what_is_said_to_be_refused(name: str) -> None:
    content = readable()[name]
    assert bool(said(content)) == bool(refused(content)), (said(content), refused(content))


def test_the_reader_takes_comments_and_refuses_duplicates(tmp_path: Path) -> None:
    from deepspeed.runtime.config import DeepSpeedConfig

    path = tmp_path / "ds.json"
    path.write_text('{\n  // a remark\n  "train_batch_size": 1,\n}\n', encoding="utf-8")
    assert DeepSpeedConfig(str(path)).train_batch_size == 1
    path.write_text('{"train_batch_size": 1, "train_batch_size": 1}', encoding="utf-8")
    with pytest.raises(ValueError, match="Duplicate keys"):
        DeepSpeedConfig(str(path))


def test_one_change_is_judged_as_the_parser_judges_it() -> None:
    """Misspelled, dropped, added and replaced keys; fixed seed, at least 98 of 100 alike."""
    draw = random.Random(20)
    bases = [content for content in readable().values() if not refused(content)]
    differing = []
    for _ in range(CHANGES):
        content, change = changed(draw.choice(bases), draw)
        if bool(said(content)) != bool(refused(content)):
            differing.append((change, said(content), refused(content)))
    assert len(differing) <= CHANGES // 50, differing


def changed(content: dict[str, Any], draw: random.Random) -> tuple[dict[str, Any], str]:
    """A content with one change, and the change in words."""
    content = copy.deepcopy(content)
    how = draw.choice(("misspell", "drop", "replace", "replace", "add", "add"))
    if how == "add":
        dotted = draw.choice([name for name, _ in inventory().dotted() if not name.startswith("aio")])
        *path, name = dotted.split(".")
        block = content
        for part in path:
            if not isinstance(block.get(part), dict):
                block[part] = {}
            block = block[part]
    else:
        block, name, dotted = draw.choice(list(places(content)))
        value = block.pop(name)
        if how == "misspell":
            block[name[:1] + name[2:]] = value
    if how in ("add", "replace"):
        block[name] = draw.choice(VALUES)
    return content, f"{how} {dotted} {block.get(name)!r}"


def places(block: dict[str, Any], path: str = "") -> Iterator[tuple[dict[str, Any], str, str]]:
    """(block, name, dotted name) of every key."""
    for name, value in list(block.items()):
        yield block, name, f"{path}{name}"
        if isinstance(value, dict):
            yield from places(value, f"{path}{name}.")


# ── the inventory against the config models ──────────────────────────────────────────────────────────────────────────


def models() -> dict[str, Any]:
    """The validated blocks by dotted name."""
    from deepspeed.comm.config import CommsLoggerConfig
    from deepspeed.compile.config import CompileConfig
    from deepspeed.inference.config import WeightQuantConfig
    from deepspeed.monitor.config import CometConfig, CSVConfig, TensorBoardConfig, WandbConfig
    from deepspeed.runtime.config import HybridEngineConfig
    from deepspeed.runtime.precision_config import DeepSpeedBF16Config, DeepSpeedFP16Config
    from deepspeed.runtime.tensor_parallel.config import TPConfig, TPTrainingConfig
    from deepspeed.runtime.zenflow.zenflow_config import ZenFlowConfig
    from deepspeed.runtime.zero.config import DeepSpeedZeroConfig
    from deepspeed.runtime.zero.leaf_module_config import DeepSpeedZeroLeafModuleConfig
    from deepspeed.runtime.zero.offload_config import (
        DeepSpeedZeroOffloadOptimizerConfig,
        DeepSpeedZeroOffloadParamConfig,
    )
    from deepspeed.utils.config import DeepSpeedThroughputTimerConfig

    return {
        "zero_optimization": DeepSpeedZeroConfig,
        "zero_optimization.offload_param": DeepSpeedZeroOffloadParamConfig,
        "zero_optimization.offload_optimizer": DeepSpeedZeroOffloadOptimizerConfig,
        "zero_optimization.zenflow": ZenFlowConfig,
        "zero_optimization.leaf_module": DeepSpeedZeroLeafModuleConfig,
        "bf16": DeepSpeedBF16Config,
        "fp16": DeepSpeedFP16Config,
        "compile": CompileConfig,
        "tensor_parallel": TPTrainingConfig,
        "tensor_parallel.tp": TPConfig,
        "hybrid_engine": HybridEngineConfig,
        "comms_logger": CommsLoggerConfig,
        "timers.throughput": DeepSpeedThroughputTimerConfig,
        "tensorboard": TensorBoardConfig,
        "wandb": WandbConfig,
        "csv_monitor": CSVConfig,
        "comet": CometConfig,
        "weight_quantization": WeightQuantConfig,
    }


@pytest.mark.parametrize("path", [path for path, block in inventory().blocks.items() if block.validated])
def test_the_inventory_has_the_keys_and_defaults_of_the_models(path: str) -> None:
    block = inventory().blocks[path]
    wanted = models()["bf16" if path == "bfloat16" else path].model_fields
    assert sorted(block.keys) == sorted(found.alias or name for name, found in wanted.items())
    for name, found in wanted.items():
        key = block.keys[found.alias or name]
        assert key.other_name == (name if found.alias else ""), name
        if not found.is_required() and isinstance(found.default, (bool, int, float, str)) and key.kind != "block":
            assert key.default == getattr(found.default, "value", found.default), name
        assert bool(key.deprecated) == bool((found.json_schema_extra or {}).get("deprecated")), name
        assert (
            bounds(key) == {name: getattr(rule, name) for rule in found.metadata for name in vars_of(rule)}
            or path == "fp16"
        )


def bounds(key: Key) -> dict[str, float]:
    """The range of a key in pydantic's words; ranges that only code checks are left out."""
    found = {"ge": key.at_least, "gt": key.above, "le": key.at_most, "lt": key.below}
    checked_in_code = ("loss_scale", "update_interval")
    return {} if key.name in checked_in_code else {name: bound for name, bound in found.items() if bound is not None}


def vars_of(rule: Any) -> list[str]:
    """The bounds that a rule of pydantic sets."""
    return [name for name in ("ge", "gt", "le", "lt") if hasattr(rule, name)]
