"""What the planner must say of each report: verdicts, measured figures, and why the others cannot be told.

A run that ran must not be `no`, one that ran out of memory must not be `fits`. Figures of reports in GB are taken as
1e9 bytes. `told` adds what the text of a report leaves open or which of its variants is meant.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

TOLERANCE = 0.15
GB = 1e9 / 2**30


@dataclass(frozen=True)
class Check:
    """One statement about one run: `ran`, `oom`, or `measures` with a metric and its GiB."""

    case: str
    kind: str
    told: Mapping[str, Any] = field(default_factory=dict)
    device: str = "gpu"
    metric: str = ""
    gib: float = 0.0

    def __str__(self) -> str:
        told = ",".join(f"{name}={value}" for name, value in self.told.items())
        return "-".join(part for part in (self.case, self.kind, self.device, self.metric, told) if part)


def ran(case: str, device: str = "gpu", **told: Any) -> Check:
    """The run ran: it must not be refused."""
    return Check(case, "ran", told, device)


def oom(case: str, device: str = "gpu", **told: Any) -> Check:
    """The run ran out of memory: it must not be promised to fit."""
    return Check(case, "oom", told, device)


def measures(case: str, metric: str, gib: float, **told: Any) -> Check:
    """The report has a figure for the peak."""
    return Check(case, "measures", told, "host" if metric == "host" else "gpu", metric, gib)


FSDP: Mapping[str, Any] = {"runtime": "fsdp1", "zero": 3}
IN_BACKWARD: Mapping[str, Any] = {"optimizer": "paged-adamw", "update": "in_backward", "gradient_clipping": 0}
ONE_GPU: Mapping[str, Any] = {"runtime": "ddp", "precision": "pure-bf16", "gpu_mem_gib": 80}
QUERY_VALUE = {"lora": {"rank": 8, "targets": ["q", "v"]}}
LORA, QLORA = {"lora": {"rank": 8}}, {"qlora": {"rank": 8}}
# torch's optimizer, which the tool of the report hands to DeepSpeed.
CLIENT: Mapping[str, Any] = {"optimizer": "adamw-foreach"}
BELLE: Mapping[str, Any] = {"precision": "fp16", "recompute": False, "attention": "eager"}
BLOOMS = (
    ("BLOOM-560M", 512, 1, 12.6), ("BLOOM-560M", 512, 2, 12.0), ("BLOOM-560M", 512, 3, 12.8),
    ("BLOOM-560M", 1024, 1, 12.6), ("BLOOM-560M", 1024, 2, 12.0), ("BLOOM-560M", 1024, 3, 12.8),
    ("BLOOM-1.1B", 512, 1, 20.7), ("BLOOM-1.1B", 512, 2, 21.5), ("BLOOM-1.1B", 512, 3, 21.7),
)  # fmt: skip
# What the tool of the report writes into its DeepSpeed configuration (h2o-llmstudio, ConfigNLPCausalLMEnvironment).
STUDIO = {"reduce_bucket": 10**6, "prefetch_bucket": 10**6, "persistence_threshold": 10**6}
# Hugging Face fills "auto" in from the hidden width of 8192.
AUTO_8192 = {"reduce_bucket": 8192**2, "prefetch_bucket": int(0.9 * 8192**2), "persistence_threshold": 81920}

CHECKS: tuple[Check, ...] = (
    # ── GPU out of memory ──
    oom("A03", zero=1, attention="eager"), oom("A03", zero=2, attention="eager"),
    ran("A03", zero=1, micro_batch=8, attention="eager"), ran("A03", zero=2, micro_batch=8, attention="eager"),
    oom("A09", zero=3, usable_gib=79.33, sizes=AUTO_8192),
    oom("A10", seq_len=2048), ran("A10", seq_len=2048, gpus=32),
    oom("A12", **FSDP), oom("A12", **{**FSDP, "seq_len": 512}),
    oom("A14", **FSDP),
    ran("A15", **FSDP, gpus=16, seq_len=20480), oom("A15", **FSDP, gpus=16, seq_len=32768),
    oom("A15", **FSDP, gpus=8, seq_len=32768),
    oom("A16", **FSDP), ran("A16", **{**FSDP, "seq_len": 10240}),
    ran("A16", **{**FSDP, "gpus": 128, "seq_len": 22528}), oom("A16", **{**FSDP, "gpus": 128, "seq_len": 32768}),
    oom("A19"),
    oom("A20", zero=3, usable_gib=79.15, sizes=AUTO_8192),
    oom("A22", runtime="ddp", method=QUERY_VALUE, precision="pure-bf16"),
    ran("A22", zero=3, method=QUERY_VALUE),
    oom("A25", "host", zero="3 + offload", optimizer="adamw"),
    # ── fits, with figures ──
    ran("B03", model="Pythia-1B", runtime="ddp", precision="bf16"),
    measures("B03", "device", 11.5 * GB, model="Pythia-1B", zero=3, sizes=STUDIO, **CLIENT),
    measures("B03", "device", 5 * GB, model="Pythia-1B", zero=3, optimizer_offload="cpu", sizes=STUDIO),
    oom("B03", model="Pythia-2.8B", zero=3, sizes=STUDIO, **CLIENT),
    ran("B03", model="Pythia-2.8B", zero=3, optimizer_offload="cpu", sizes=STUDIO),
    *(measures("B04", "device", gb * GB, model=model, seq_len=tokens, zero=stage, **BELLE)
      for model, tokens, stage, gb in BLOOMS),
    measures("B05", "reserved", 29 * GB, **FSDP),
    measures("B06", "allocated", 54 * GB, **ONE_GPU, optimizer="adamw"),
    measures("B06", "allocated", 67.5 * GB, **ONE_GPU, optimizer="adamw-foreach"),
    measures("B06", "allocated", 40.5 * GB, **ONE_GPU, optimizer="adamw-8bit"),
    measures("B06", "allocated", 13.99 * GB, **ONE_GPU, **IN_BACKWARD),
    measures("B06", "reserved", 15.97 * GB, **ONE_GPU, **IN_BACKWARD),
    measures("B07", "device", 51 * GB, runtime="fsdp2", zero=3, precision="pure-bf16"),
    ran("B08", **ONE_GPU, method=QLORA, seq_len=2048),
    ran("B09", model="T5-11B"), measures("B09", "host", 234 * GB, model="T5-11B"),
    ran("B09", model="T5-3B", gpu_mem_gib=24, gpu=""), measures("B09", "host", 71 * GB, model="T5-3B"),
    ran("B10"), measures("B10", "host", 100 * GB),
    oom("B10", zero=0, gpu="A100", gpu_mem_gib=40), oom("B10", zero=0, gpu="RTX 6000", gpu_mem_gib=24),
    ran("B12", precision="fp16", seq_len=1024),
    ran("B13"), oom("B13", zero=2), oom("B13", zero=3), measures("B13", "host", 900 * GB),
    # ── host memory ──
    oom("C02", "host"),
    oom("C04", "host", model="Baichuan-13B", gpus=1, gpu_mem_gib=80, host_ram_gib=469 // 2),
    oom("C05", "host", host_ram_gib=1600 // 2, accumulation="fp32"),
    oom("C07", "host", precision="fp16", optimizer_offload="nvme", parameter_offload="nvme",
        sizes={"swap_buffer_size": 10**9}),
    oom("C10", "host", gpu_mem_gib=80, zero="3 + offload", precision="fp16"),
    oom("C11", "host", precision="fp16"), oom("C12", "host", host_ram_gib=800),
    # ── estimators against reality ──
    measures("D01", "host", 143 * GB, model="Llama-2-7B", gpu="A100"),
    ran("D02", method=LORA),
    measures("D06", "host", 45 * GB, model="Llama-2-13B", gpu_mem_gib=80),
    measures("D09", "reserved", 43.9, **ONE_GPU, optimizer="adamw-8bit"),
    # ── configurations ──
    oom("E16", model="Llama-3.1-405B", gpu="H100", runtime="ddp", zero=0, precision="pure-bf16", method=QLORA),
    oom("E17", gpu_mem_gib=80, optimizer="adamw-8bit"),
    # ── slow ──
    ran("F01", method=QUERY_VALUE, gpu_mem_gib=80, zero=2),
    ran("F03", model="Baichuan2-13B", method=QUERY_VALUE, gpu="A800", gpu_mem_gib=80, gpus=2, zero=2),
    oom("F04", method=QUERY_VALUE, gpus=2, zero=2), ran("F04", method=QUERY_VALUE, gpus=2, zero=3),
    ran("F11", gpus=32, gpu="A100", gpu_mem_gib=80, zero=3),
    # ── what else takes memory ──
    oom("G06", **FSDP, usable_gib=139.72),
    oom("G07", runtime="ddp", precision="pure-bf16", method=LORA),
    ran("G07", runtime="ddp", precision="pure-bf16", method=LORA, recompute=True),
    oom("G15", runtime="ddp", precision="pure-bf16", zero=0, method=LORA),
    ran("G15", runtime="ddp", precision="pure-bf16", zero=0, method=QLORA, gpus=8, gpu_mem_gib=40, seq_len=1024),
    oom("G16", zero=3, seq_len=2048, micro_batch=2),
)  # fmt: skip
