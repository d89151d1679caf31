"""One rank of a measured run: builds the model, takes a few steps under the plan, and writes what they took.

    python worker.py CONFIG.json MEASURED.json STEPS [TRACE.json.gz]

Rank 0 writes, with TRACE one more step of its own as torch's profiler sees it. Random weights and random tokens;
collectives and shapes are those of a real run.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

Phases = dict[str, dict[str, dict[str, int]]]


def main(arguments: list[str]) -> None:
    """Measures and writes; the trace comes last, so that the measurement is there whatever the profiler does."""
    import deepspeed

    from planner.output import write_files

    config, target, steps = Path(arguments[0]), Path(arguments[1]), int(arguments[2])
    run = started()
    found = measured(run, json.loads(config.read_text(encoding="utf-8")), steps)
    if deepspeed.comm.get_rank() == 0:
        write_files(target.parent, {target.name: json.dumps(found, indent=2) + "\n"}, force=True)
    if len(arguments) > 3:
        profiled(run, Path(arguments[3]), deepspeed.comm.get_rank() == 0)
    deepspeed.comm.barrier()


def started() -> Run:
    """This rank's run, joined to the others."""
    from planner import runtime
    from planner.verify.meters import meter

    device, plan = runtime.start(), runtime.plan()
    return Run(meter(device), device, plan)


def measured(run: Run, fields: Mapping[str, Any], steps: int) -> dict[str, Any]:
    """Bytes by phase and book, seconds of each step, losses; on a GPU what it and its allocator say."""
    from planner import runtime

    configuration = runtime.configuration()
    with run.meter.watching():
        model = run.load(fields, configuration)
        run.initialize(model, configuration)
        for number in range(steps):
            run.step(last=number == steps - 1)
    ranks = of_all_ranks({"phases": run.phases, "facts": run.meter.facts()})
    names = ranks[0]["phases"]
    return {
        "device": run.device.type, "gpu": run.meter.name(),
        "phases": {name: joined([rank["phases"][name] for rank in ranks]) for name in names},
        "seconds": run.seconds, "losses": run.losses,
        **{name: max(rank["facts"][name] for rank in ranks) for name in ranks[0]["facts"]},
    }  # fmt: skip


def profiled(run: Run, target: Path, writes: bool) -> None:
    """One more step, of which the rank that `writes` keeps a trace; on GPUs after one that warms the profiler up."""
    from torch.profiler import ProfilerActivity, profile, schedule

    from planner.output import write_files

    on_gpu = run.device.type == "cuda"
    if not writes:
        for _ in range(1 + on_gpu):
            run.step(last=False)
        return
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    with profile(activities=activities, schedule=schedule(wait=0, warmup=int(on_gpu), active=1, repeat=1)) as seen:
        for _ in range(1 + on_gpu):
            run.step(last=False)
            seen.step()
    with TemporaryDirectory() as folder:
        path = Path(folder) / target.name
        seen.export_chrome_trace(str(path))
        write_files(target.parent, {target.name: path.read_bytes()}, force=True)


def of_all_ranks(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What every rank found, in the order of the ranks."""
    import torch

    every: list[dict[str, Any]] = [{}] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(every, dict(found))
    return every


def joined(ranks: Sequence[Mapping[str, Mapping[str, int]]]) -> dict[str, dict[str, int]]:
    """One phase of several ranks."""
    books = dict.fromkeys(book for rank in ranks for book in rank["most"])
    peak = max((rank["peak"] for rank in ranks), key=lambda peak: sum(peak.values()))
    return {"peak": dict(peak), "most": {book: max(rank["most"].get(book, 0) for rank in ranks) for book in books}}


class Run:
    """A model under DeepSpeed with its meter.

    `phases` holds for each measured phase its largest `peak` by book, and the `most` of each book alone.
    """

    def __init__(self, meter: Any, device: Any, plan: Mapping[str, Any]) -> None:
        self.meter, self.device, self.plan = meter, device, plan
        self.engine: Any = None
        self.measuring = False
        self.phases: Phases = {}
        self.seconds: list[float] = []
        self.losses: list[float] = []

    def load(self, fields: Mapping[str, Any], configuration: Mapping[str, Any]) -> Any:
        """The model with random weights, as the plan wants it."""
        import deepspeed
        import torch

        from planner import runtime

        with self.phase("load", always=True):
            torch.manual_seed(0)
            with deepspeed.zero.Init(config_dict_or_path=dict(configuration)) if self.stage == 3 else self.device:
                model = built(fields, self.plan["training"])
            return runtime.apply(model, self.plan)

    @property
    def stage(self) -> int:
        """The plan's ZeRO stage."""
        return int(self.plan["plan"]["zero_stage"])

    def initialize(self, model: Any, configuration: Mapping[str, Any]) -> None:
        """DeepSpeed's engine. Stage 0 takes its flat buffers only with an optimizer it knows as FusedAdam."""
        from unittest import mock

        import deepspeed
        import torch

        changed = {**configuration, "zero_force_ds_cpu_optimizer": False}
        with self.phase("init", always=True), mock.patch("deepspeed.runtime.engine.FusedAdam", torch.optim.AdamW):
            self.engine, *_ = deepspeed.initialize(model=model, optimizer=self._optimizer(model), config=changed)
        self.meter.made(self.engine)
        head = self.engine.module.get_output_embeddings()
        head.register_forward_pre_hook(lambda _, given: self._head_begins(given[0]))

    def _optimizer(self, model: Any) -> Any:
        """AdamW; what is offloaded beside a GPU is updated by DeepSpeed's own, which it compiles at its first use."""
        import torch

        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        if self.device.type == "cpu" or self.plan["plan"]["optimizer_offload"] == "none":
            return torch.optim.AdamW(trained, lr=1e-4, fused=True)
        from deepspeed.ops.adam import DeepSpeedCPUAdam

        return DeepSpeedCPUAdam(trained, lr=1e-4)

    def step(self, last: bool) -> None:
        """One optimizer step; the last one of a run is measured, micro-batch by micro-batch."""
        from planner.runtime import marks

        self.measuring = last
        gc.collect()
        self._wait()
        begun = time.perf_counter()
        with marks.mark(marks.STEP):
            losses = [self._micro_batch() for _ in range(self.engine.gradient_accumulation_steps())]
            self._wait()
        self.seconds.append(time.perf_counter() - begun)
        self.losses += [float(loss) for loss in losses]

    def _wait(self) -> None:
        """Until the GPU has done what it was given."""
        import torch

        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def _micro_batch(self) -> Any:
        """Forward, loss, backward, and the update where it is due; returns the loss, which nothing waits for."""
        import torch

        from planner.runtime.marks import BACKWARD, FORWARD, UPDATE, mark

        size = (self.engine.train_micro_batch_size_per_gpu(), self.plan["training"]["sequence_length"])
        boundary = self.engine.is_gradient_accumulation_boundary()
        with mark(FORWARD):
            tokens = torch.randint(0, self.engine.module.config.vocab_size, size, device=self.device)
            self._begin("forward")
            loss = self.engine(input_ids=tokens, labels=tokens).loss
        with mark(BACKWARD):
            self.engine.backward(loss)
            self._end()
        found = loss.detach().clone()
        del loss, tokens
        with mark(UPDATE), self.phase("optimizer_step" if boundary else "backward"):
            self.engine.step()
        return found

    def _head_begins(self, hidden: Any) -> None:
        """The output head runs: forward ends here, and backward begins when the gradient of its input is there."""
        if not self.measuring or not hidden.requires_grad:
            return
        self._end()
        self._begin("loss")

        def arrives(_: Any) -> None:
            self._end()
            self._begin("backward")

        hidden.register_hook(arrives)

    @contextmanager
    def phase(self, name: str, always: bool = False) -> Iterator[None]:
        """Measures what the block holds at most."""
        measuring, self.measuring = self.measuring, self.measuring or always
        self._begin(name)
        yield
        self._end()
        self.measuring = measuring

    def _begin(self, name: str) -> None:
        """Begins a phase."""
        self.running = name
        if self.measuring:
            self.meter.enter(name)

    def _end(self) -> None:
        """Keeps the phase's peak where it is the largest so far."""
        if not self.measuring:
            return
        peak, most = self.meter.peaks(self.engine)
        known = self.phases.setdefault(self.running, {"peak": {}, "most": {}})
        if sum(peak.values()) > sum(known["peak"].values()):
            known["peak"] = peak
        known["most"] = {book: max(size, known["most"].get(book, 0)) for book, size in most.items()}


def built(fields: Mapping[str, Any], training: Mapping[str, Any]) -> Any:
    """The causal language model of a config.json in training mode."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    rest = {name: value for name, value in fields.items() if name not in ("model_type", "auto_map")}
    config = AutoConfig.for_model(fields["model_type"], **rest)
    config.use_cache = False
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}[training["dtype"]]
    attention = "eager" if training["attention"] == "eager" else "sdpa"
    return AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation=attention).train()


if __name__ == "__main__":
    main(sys.argv[1:])
