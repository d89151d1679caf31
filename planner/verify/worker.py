"""One rank of a measured run: builds the model, takes a few steps under the plan, and writes what they took.

    python worker.py CONFIG.json MEASURED.json STEPS

Rank 0 writes. Random weights and random tokens; collectives and shapes are those of a real run.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

Phases = dict[str, dict[str, dict[str, int]]]


def main(arguments: list[str]) -> None:
    """Measures and writes."""
    import deepspeed

    from planner.output import write_files

    config, target, steps = Path(arguments[0]), Path(arguments[1]), int(arguments[2])
    found = measured(json.loads(config.read_text(encoding="utf-8")), steps)
    if deepspeed.comm.get_rank() == 0:
        write_files(target.parent, {target.name: json.dumps(found, indent=2) + "\n"}, force=True)
    deepspeed.comm.barrier()


def measured(fields: Mapping[str, Any], steps: int) -> dict[str, Any]:
    """Bytes by phase and book, seconds of each step, losses."""
    from planner import runtime
    from planner.verify.meters import meter

    device, plan, configuration = runtime.start(), runtime.plan(), runtime.configuration()
    run = Run(meter(device), device, plan)
    with run.meter.watching():
        model = run.load(fields, configuration)
        run.initialize(model, configuration)
        for number in range(steps):
            run.step(last=number == steps - 1)
    return {
        "device": device.type, "phases": of_all_ranks(run.phases), "seconds": run.seconds, "losses": run.losses,
        **run.meter.facts(),
    }  # fmt: skip


def of_all_ranks(phases: Phases) -> Phases:
    """Of each phase the peak of the rank that holds most, and the most of each book on any rank."""
    import torch

    found: list[Phases] = [{}] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(found, phases)
    return {name: joined([one[name] for one in found]) for name in phases}


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
            with deepspeed.zero.Init(config_dict_or_path=dict(configuration), enabled=self.stage == 3):
                model = built(fields, self.plan["training"])
            return runtime.apply(model if self.stage == 3 else model.to(self.device), self.plan)

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
            optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4, fused=True)
            self.engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=changed)
        self.meter.made(self.engine)
        head = self.engine.module.get_output_embeddings()
        head.register_forward_pre_hook(lambda _, given: self._head_begins(given[0]))

    def step(self, last: bool) -> None:
        """One optimizer step; the last one of a run is measured, micro-batch by micro-batch."""
        self.measuring = last
        gc.collect()
        begun = time.perf_counter()
        for _ in range(self.engine.gradient_accumulation_steps()):
            self._micro_batch()
        if self.device.type == "cuda":
            import torch

            torch.cuda.synchronize(self.device)
        self.seconds.append(time.perf_counter() - begun)

    def _micro_batch(self) -> None:
        """Forward, loss, backward, and the update where it is due."""
        import torch

        size = (self.engine.train_micro_batch_size_per_gpu(), self.plan["training"]["sequence_length"])
        tokens = torch.randint(0, self.engine.module.config.vocab_size, size, device=self.device)
        boundary = self.engine.is_gradient_accumulation_boundary()
        self._begin("forward")
        loss = self.engine(input_ids=tokens, labels=tokens).loss
        self.engine.backward(loss)
        self._end()
        self.losses.append(float(loss.detach()))
        del loss, tokens
        with self.phase("optimizer_step" if boundary else "backward"):
            self.engine.step()

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
