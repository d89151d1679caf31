"""Run real DeepSpeed on CPU processes and measure, configuration by configuration, what it keeps in memory.

`measured` starts one pair of processes, runs every configuration in it on a small Llama with random weights,
and returns one `Record` each. As a command: `python measured_run.py CONFIGURATIONS.json RECORDS.json`.
Nothing is compiled: the shared-memory collective is left out in favour of gloo, and the optimizer is
`torch.optim.AdamW(fused=True)`, which keeps the tensors FusedAdam and DeepSpeedCPUAdam keep and allocates
nothing while it steps. Gloo copies what it reduce-scatters: a backward pass of stage 3 peaks by one gradient higher
here than what DeepSpeed allocates.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

Configuration = Mapping[str, Any]
SECONDS_ALLOWED = 600
STEPS = 2  # the moments appear in the first, stage 3 prefetches from the second: the last one is measured


@dataclass(frozen=True)
class Shape:
    """The Llama every configuration trains; `hidden_size` is a multiple of 64."""

    hidden_size: int = 256
    intermediate_size: int = 688
    layers: int = 4
    vocabulary: int = 2048
    sequence: int = 8


@dataclass(frozen=True)
class Phase:
    """Bytes on one process, host and device together: at the start, at most, at the end, and by category.

    `peak_made_in` splits the peak by the phase its storages were made in; `books` are those of the end.
    """

    before: int
    peak: int
    after: int
    peak_made_in: Mapping[str, int]
    books: Mapping[str, int]


@dataclass(frozen=True)
class Record:
    """What one configuration was measured to hold on rank 0.

    Counts are elements: `parameters` N, `largest` P, `in_partition` Np (elements of the tensors that touch this
    rank's share), `bucket` R, `sub_group` S (the largest of stage 3, 0 below); `world` is n. `forward` and
    `backward` have one phase a micro-batch of the last step, `step` is its update. `wrapper` is the class of
    DeepSpeed's optimizer, `losses` those of the last micro-batch of each step. `backward_peak` is the last backward's
    peak on the rank that holds most, without what forward left.
    """

    configuration: Configuration
    world: int
    parameters: int
    largest: int
    in_partition: int
    bucket: int
    sub_group: int
    wrapper: str
    model: Phase
    init: Phase
    forward: tuple[Phase, ...]
    backward: tuple[Phase, ...]
    step: Phase
    backward_peak: int
    losses: tuple[float, ...] = field(default=())

    @property
    def steady(self) -> Mapping[str, int]:
        """The books after the update, when the next step has not begun."""
        return self.step.books

    @property
    def host(self) -> int:
        """Bytes on the host between steps; 0 without offload. The rest of any figure lies on the device."""
        return sum(size for name, size in self.steady.items() if name.startswith("host_"))


def measured(configurations: Sequence[Configuration], shape: Shape | None = None, world: int = 2) -> list[Record]:
    """One record per configuration, in order; raises RuntimeError with the output of the process that failed.

    A configuration is a DeepSpeed dictionary; its `optimizer` and `scheduler` blocks are left out.
    """
    with tempfile.TemporaryDirectory() as folder:
        task = {"configurations": list(configurations), "shape": asdict(shape or Shape())}
        Path(folder, "task.json").write_text(json.dumps(task))
        _run_all(folder, world)
        return [record(fields) for fields in json.loads(Path(folder, "records.json").read_text())]


def record(fields: Mapping[str, Any]) -> Record:
    """A record from its JSON form."""
    phases = {name: Phase(**fields[name]) for name in ("model", "init", "step")}
    lists = {name: tuple(Phase(**phase) for phase in fields[name]) for name in ("forward", "backward")}
    return Record(**{**fields, **phases, **lists, "losses": tuple(fields["losses"])})


def _run_all(folder: str, world: int) -> None:
    port = _free_port()
    processes = [_start(folder, rank, world, port) for rank in range(world)]
    try:
        failed = _first_failed(processes)
    finally:
        for process in processes:
            process.kill()
            process.wait()
    if failed is not None:
        output = _log(folder, failed).read_text(errors="replace")
        raise RuntimeError(f"rank {failed}: exit code {processes[failed].returncode}\n{output[-6000:]}")


def _first_failed(processes: Sequence[subprocess.Popen[bytes]]) -> int | None:
    """The rank that failed first, None when all ended well; a run past its time counts as failed."""
    deadline = time.monotonic() + SECONDS_ALLOWED
    while time.monotonic() < deadline:
        codes = [process.poll() for process in processes]
        failed = [rank for rank, code in enumerate(codes) if code]
        if failed:
            return failed[0]
        if None not in codes:
            return None
        time.sleep(0.2)
    return next(rank for rank, process in enumerate(processes) if process.poll() is None)


def _start(folder: str, rank: int, world: int, port: int) -> subprocess.Popen[bytes]:
    process_group = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "MASTER_ADDR": "127.0.0.1"}
    library = {"MASTER_PORT": port, "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": 1, "GLOO_SOCKET_IFNAME": "lo"}
    environment = os.environ | {name: str(value) for name, value in (process_group | library).items()}
    with _log(folder, rank).open("wb") as output:
        command = [sys.executable, __file__, "--worker", folder]
        return subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)


def _log(folder: str, rank: int) -> Path:
    return Path(folder, f"rank{rank}.log")


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


# ---- inside a worker process ----


def _work(folder: str) -> None:
    import gc

    import deepspeed
    import deepspeed.runtime.zero.muon.original_muon
    import transformers.models.llama.modeling_llama  # noqa: F401  (late imports, brought before the freeze below)

    gc.freeze()  # a collection then walks the few objects of a run, not those of the libraries
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # else it is compiled for a minute
    deepspeed.init_distributed(dist_backend="gloo", verbose=False)
    task = json.loads(Path(folder, "task.json").read_text())
    records = [_measure(configuration, Shape(**task["shape"])) for configuration in task["configurations"]]
    if deepspeed.comm.get_rank() == 0:
        Path(folder, "records.json").write_text(json.dumps(records))


def _measure(configuration: Configuration, shape: Shape) -> dict[str, Any]:
    from planner.verify.storages import Life, watching

    given = {name: block for name, block in configuration.items() if name not in ("optimizer", "scheduler")}
    settings = {**given, "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False}
    life = Life()
    with _globals_restored(), watching(life):
        life.enter("model")
        model = _model(shape, settings)
        made = _held(life, before=0)
        engine, init = _initialized(life, model, settings)
        losses = [_update(engine, shape) for _ in range(STEPS - 1)]
        phases, loss = _measured_update(life, engine, shape)
        losses.append(loss)
        facts = _facts(engine, model)
        engine.destroy()
    facts["backward_peak"] = _most(phases["backward"][-1])
    return {"configuration": configuration, **facts, "model": made, "init": init, **phases, "losses": losses}


def _model(shape: Shape, settings: Configuration) -> Any:
    import deepspeed
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    architecture = LlamaConfig(
        hidden_size=shape.hidden_size,
        intermediate_size=shape.intermediate_size,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.hidden_size // 64,
        vocab_size=shape.vocabulary,
        use_cache=False,
        attn_implementation="sdpa",
    )
    torch.manual_seed(0)
    stage_3 = settings.get("zero_optimization", {}).get("stage", 0) == 3
    low_precision = settings.get("bf16", {}).get("enabled", False)
    torch.set_default_dtype(torch.bfloat16 if low_precision else torch.float32)
    try:
        with deepspeed.zero.Init(config_dict_or_path=dict(settings), enabled=stage_3):
            return LlamaForCausalLM(architecture).train()
    finally:
        torch.set_default_dtype(torch.float32)


def _initialized(life: Any, model: Any, settings: Configuration) -> tuple[Any, dict[str, Any]]:
    from unittest import mock

    import deepspeed
    import torch

    before = life.live
    life.enter("init")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    # Stage 0 takes its flat buffers only with an optimizer it knows as FusedAdam.
    with mock.patch("deepspeed.runtime.engine.FusedAdam", torch.optim.AdamW):
        engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=dict(settings))
    _collect()
    return engine, _held(life, before, engine)


def _update(engine: Any, shape: Shape) -> float:
    """One optimizer step; the loss of its last micro-batch."""
    loss = None
    for _ in range(engine.gradient_accumulation_steps()):
        tokens = _tokens(engine, shape)
        loss = engine(tokens, labels=tokens).loss
        engine.backward(loss)
        engine.step()
    return float(loss)


def _measured_update(life: Any, engine: Any, shape: Shape) -> tuple[dict[str, Any], float]:
    """As `_update`, with its phases."""
    _collect()
    phases: dict[str, list[Any]] = {"forward": [], "backward": [], "step": []}
    for _ in range(engine.gradient_accumulation_steps()):
        tokens = _tokens(engine, shape)
        with _phase(life, engine, "forward", phases):
            loss = engine(tokens, labels=tokens).loss
        with _phase(life, engine, "backward", phases):
            engine.backward(loss)
            value = float(loss)
            del loss
        with _phase(life, engine, "step", phases):
            engine.step()
    return {**phases, "step": phases["step"][-1]}, value


def _tokens(engine: Any, shape: Shape) -> Any:
    import torch

    size = (engine.train_micro_batch_size_per_gpu(), shape.sequence)
    return torch.randint(0, shape.vocabulary, size)


@contextmanager
def _phase(life: Any, engine: Any, name: str, phases: dict[str, list[Any]]) -> Iterator[None]:
    """Append to `phases[name]` what the block held."""
    before = life.live
    life.enter(name)
    yield
    _collect()
    phases[name].append(_held(life, before, engine))


def _held(life: Any, before: int, engine: Any = None) -> dict[str, Any]:
    made = dict(life.peak_made_in())
    peak = {"peak": sum(made.values()), "peak_made_in": made}
    return {"before": before, "after": life.live, "books": _books(engine) if engine else {}, **peak}


def _books(engine: Any) -> dict[str, int]:
    """What the engine holds; with offload, what lies on the host is under `host_…`."""
    from planner.verify.books import live_books

    found = live_books(engine).items()
    return {f"host_{book}" if host else book: size for (book, host), size in found if size}


def _most(backward: Mapping[str, Any]) -> int:
    """A backward's peak on the rank that holds most, without what forward left."""
    import torch

    found = torch.tensor(backward["peak"] - backward["peak_made_in"].get("forward", 0))
    torch.distributed.all_reduce(found, torch.distributed.ReduceOp.MAX)
    return int(found)


def _facts(engine: Any, model: Any) -> dict[str, Any]:
    sizes = [getattr(p, "ds_numel", p.numel()) for p in model.parameters()]
    world = engine.dp_world_size
    zero = engine._config.zero_config
    mine = [p.numel() for group in getattr(engine.optimizer, "params_in_partition", []) for p in group]
    return {
        "world": world,
        "parameters": sum(sizes),
        "largest": max(sizes),
        "in_partition": sum(mine) or sum(sizes) // world,
        "bucket": int(zero.reduce_bucket_size),
        "sub_group": max(getattr(engine.optimizer, "fp16_partitioned_groups_flat_numel", []), default=0),
        "wrapper": type(engine.optimizer).__name__,
    }


@contextmanager
def _globals_restored() -> Iterator[None]:
    """Put back what stage 3 leaves on its `Init` class and on `torch.nn.functional`, so that runs do not meet."""
    import torch
    from deepspeed.runtime.zero.partition_parameters import Init

    plain = {name: value for name, value in vars(Init).items() if isinstance(value, (int, float, type(None)))}
    linear = torch.nn.functional.linear
    try:
        yield
    finally:
        for name, value in plain.items():
            if not name.startswith("__"):
                setattr(Init, name, value)
        torch.nn.functional.linear = linear
        _collect()


def _collect() -> None:
    import gc

    gc.collect()


def main(arguments: Sequence[str]) -> None:
    """`--worker FOLDER` is one process of a run; `CONFIGURATIONS.json RECORDS.json` starts a run."""
    if arguments[0] == "--worker":
        _work(arguments[1])
        return
    records = measured(json.loads(Path(arguments[0]).read_text()))
    Path(arguments[1]).write_text(json.dumps([asdict(one) for one in records], indent=1))


if __name__ == "__main__":
    main(sys.argv[1:])
