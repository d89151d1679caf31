"""What a training script needs of its plan: where it is, and what no configuration file expresses, done to its model.

plan = planner.runtime.plan()                    # what `planner launch` started this process with
model = AutoModelForCausalLM.from_pretrained(...)
planner.runtime.apply(model, plan)
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from planner.errors import InputError
from planner.runtime.checkpoints import checkpoint_segments
from planner.runtime.losses import chunk_the_loss, fuse_the_loss
from planner.runtime.tiles import tile_feed_forward

if TYPE_CHECKING:
    import torch

    from planner.evaluate import Evaluation

    Model = TypeVar("Model", bound=torch.nn.Module)

# Names in the environment of every rank that a launch starts.
PLAN, CONFIGURATION, DEVICE = "PLANNER_PLAN", "PLANNER_DEEPSPEED", "PLANNER_DEVICE"


def apply(model: Model, plan: Mapping[str, Any] | Evaluation | str | os.PathLike[str]) -> Model:
    """Makes a Hugging Face model do what the plan says and no configuration file can; returns the same model.

    The first `checkpoint_count` × `checkpoint_interval` layers are checkpointed in segments of `checkpoint_interval`
    layers and no others, with what `recompute_policy` keeps; what backward needs of the layers goes to the host where
    `activation_offload` is cpu; the loss is computed in chunks or fused where `loss` says so; feed-forward blocks go
    through their tokens in `mlp_tiles` parts.
    `plan` is the values of the choices, a whole answer, an evaluation, or the path of a plan.json. Call it before the
    runtime wraps the model; it may be called again. Raises InputError where the model's code cannot do it.
    """
    values = _values(plan)
    count, interval = int(values.get("checkpoint_count", 0)), int(values.get("checkpoint_interval", 0))
    offload = values.get("activation_offload", "none") == "cpu"
    selective = values.get("recompute_policy", "full") == "selective"
    checkpoint_segments(model, count, interval, offload, selective)
    loss = values.get("loss", "standard")
    if loss == "chunked":
        chunk_the_loss(model)
    elif loss == "fused":
        fuse_the_loss(model)
    tile_feed_forward(model, int(values.get("mlp_tiles", 1)))
    return model


def plan(path: str | os.PathLike[str] | None = None) -> dict[str, Any]:
    """The answer in a plan.json, by default in that of the launch. Raises InputError where there is none."""
    found = path or os.environ.get(PLAN)
    if not found:
        raise InputError(f"{PLAN} is not set", expected="a process that `planner launch` started, or a path")
    try:
        answer: dict[str, Any] = json.loads(Path(found).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"cannot be read: {error}", str(found), expected="a plan.json") from None
    return answer


def configuration(path: str | os.PathLike[str] | None = None) -> dict[str, Any]:
    """The DeepSpeed configuration of the launch, as `deepspeed.initialize(config=...)` takes it."""
    found = path or os.environ.get(CONFIGURATION)
    if not found:
        raise InputError(f"{CONFIGURATION} is not set", expected="a launch of a job with runtime deepspeed, or a path")
    read: dict[str, Any] = json.loads(Path(found).read_text(encoding="utf-8"))
    return read


def start() -> torch.device:
    """Joins the ranks of the launch under DeepSpeed and returns this rank's device.

    On CPU ranks nothing is compiled: collectives go through gloo.
    """
    import deepspeed
    import torch
    import torch._dynamo  # model code imports it, which fails while zero.Init has tensors replaced (torch 2.13)

    if os.environ.get(DEVICE) == "cpu":
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
        deepspeed.init_distributed(dist_backend="gloo", verbose=False)
        return torch.device("cpu")
    accelerator = deepspeed.get_accelerator()
    device = torch.device(accelerator.device_name(int(os.environ["LOCAL_RANK"])))
    accelerator.set_device(device.index)  # before the ranks join: NCCL takes the current device
    deepspeed.init_distributed(verbose=False)
    return device


def _values(plan: Mapping[str, Any] | Evaluation | str | os.PathLike[str]) -> Mapping[str, Any]:
    """The values of the choices."""
    if isinstance(plan, (str, os.PathLike)):
        return _values(globals()["plan"](plan))
    if isinstance(plan, Mapping):
        inner = plan.get("plan")
        return inner if isinstance(inner, Mapping) else plan
    return plan.plan
