"""What DeepSpeed really holds, against the published and source-derived bytes per parameter.

Every configuration runs in one pair of CPU processes. Sources of the formulas: Rajbhandari et al. 2020
(arXiv:1910.02054), section 3, and DeepSpeed 0.19.8 (deepspeed/runtime/zero/stage_1_and_2.py, stage3.py,
deepspeed/runtime/bf16_optimizer.py, deepspeed/runtime/fp16/fused_optimizer.py). N parameters, n processes, R
elements in a bucket, P elements in the largest tensor, Np elements of the tensors that touch a process's share.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

pytest.importorskip("deepspeed")

from measured_run import Record, measured

TOLERANCE = 0.02
BUCKET = 200_000  # elements: small against the 4.2 million parameters, as 5e8 is against a real model
# Stage 3 as it behaves on a model larger than these limits: nothing stays gathered between layers.
NOTHING_KEPT = {
    "stage3_prefetch_bucket_size": 0,
    "stage3_max_live_parameters": 0,
    "stage3_max_reuse_distance": 0,
    "stage3_param_persistence_threshold": 0,
}


def configuration(stage: int, accumulation: int = 1, precision: str = "bf16", **zero: Any) -> dict[str, Any]:
    """Micro-batch 1; `zero` goes into the `zero_optimization` block."""
    limits = NOTHING_KEPT if stage == 3 else {}
    return {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": accumulation,
        "gradient_clipping": 1.0,
        "bf16": {"enabled": precision == "bf16"},
        "zero_optimization": {"stage": stage, "reduce_bucket_size": BUCKET, **limits, **zero},
    }


def accumulating_in_fp32(stage: int, accumulation: int) -> dict[str, Any]:
    return {**configuration(stage, accumulation), "data_types": {"grad_accum_dtype": "fp32"}}


OFFLOAD = {"offload_optimizer": {"device": "cpu", "pin_memory": False}}
OFFLOAD_ALL = {**OFFLOAD, "offload_param": {"device": "cpu", "pin_memory": False}}

CONFIGURATIONS: dict[str, dict[str, Any]] = {
    **{f"z{stage} g{g}": configuration(stage, g) for stage in (0, 1, 2, 3) for g in (1, 2)},
    **{f"z{stage} g{g} fp32 sum": accumulating_in_fp32(stage, g) for stage in (1, 2, 3) for g in (1, 2)},
    **{f"z{stage} fp32": configuration(stage, precision="fp32") for stage in (0, 1, 2, 3)},
    "z1 g1 offload": configuration(1, **OFFLOAD),
    **{f"z{stage} g{g} offload": configuration(stage, g, **OFFLOAD) for stage in (2, 3) for g in (1, 2)},
    "z3 g1 offload all": configuration(3, **OFFLOAD_ALL),
    "z3 g1 small groups": configuration(3, sub_group_size=300_000),
}


@dataclass(frozen=True)
class Symbols:
    """The letters of the formulas, for one record."""

    N: int
    n: int
    P: int
    R: int
    S: int
    Np: int


Formula = Callable[[Symbols], float]

# Bytes on one process. Activations are left out: eight tokens leave a tenth of a byte per parameter.
MEASURED: dict[str, Callable[[Record], float]] = {
    "after init": lambda r: r.init.after,
    "init peak": lambda r: r.init.peak,
    "steady": lambda r: r.step.after - r.host,
    "host": lambda r: r.host,
    "last forward": lambda r: r.forward[-1].before - r.host,
    "backward peak": lambda r: r.backward[-1].peak - r.backward[-1].peak_made_in.get("forward", 0) - r.host,
    "after backward": lambda r: r.backward[-1].after - r.host,
    "step peak": lambda r: r.step.peak - r.host,
}

FORMULAS: dict[str, dict[str, Formula]] = {
    "z0 g1": {
        "after init": lambda s: 14 * s.N,
        "init peak": lambda s: 18 * s.N,
        "steady": lambda s: 14 * s.N,
        "backward peak": lambda s: 18 * s.N,
        "after backward": lambda s: 16 * s.N,
        "step peak": lambda s: 24 * s.N,
    },
    "z0 g2": {"steady": lambda s: 14 * s.N, "last forward": lambda s: 16 * s.N, "step peak": lambda s: 24 * s.N},
    "z1 g1": {
        "after init": lambda s: 2 * s.N + 4 * s.N / s.n,
        "init peak": lambda s: max(4 * s.N, 2 * s.N + 8 * s.N / s.n),
        "steady": lambda s: 2 * s.N + 12 * s.N / s.n,
        "backward peak": lambda s: 2 * s.N + 12 * s.N / s.n + 2 * s.N + 2 * s.Np + 2 * s.R,
        "after backward": lambda s: 2 * s.N + 12 * s.N / s.n + 2 * s.Np,
        "step peak": lambda s: 2 * s.N + 20 * s.N / s.n,
    },
    "z1 g2": {"last forward": lambda s: 2 * s.N + 12 * s.N / s.n + 2 * s.N + 2 * s.R},
    "z2 g1": {
        "after init": lambda s: 2 * s.N + 4 * s.N / s.n,
        "init peak": lambda s: max(4 * s.N, 2 * s.N + 8 * s.N / s.n),
        "steady": lambda s: 2 * s.N + 12 * s.N / s.n,
        "backward peak": lambda s: 2 * s.N + 12 * s.N / s.n + 2 * s.Np + 2 * s.R + 2 * s.P,
        "after backward": lambda s: 2 * s.N + 12 * s.N / s.n + 2 * s.Np,
        "step peak": lambda s: 2 * s.N + 20 * s.N / s.n,
    },
    "z2 g2": {
        "steady": lambda s: 2 * s.N + 12 * s.N / s.n,
        "last forward": lambda s: 2 * s.N + 12 * s.N / s.n + 2 * s.Np,
        "backward peak": lambda s: 2 * s.N + 12 * s.N / s.n + 4 * s.Np + 2 * s.R + 2 * s.P,
    },
    "z3 g1": {
        "after init": lambda s: 8 * s.N / s.n + 2 * s.R,
        "init peak": lambda s: 6 * s.N / s.n + 4 * s.S,
        "steady": lambda s: 16 * s.N / s.n + 2 * s.R,
        # the largest tensor gathered and its gradient, and the copy gloo itself makes of what it reduce-scatters:
        # the last 2P belong to the CPU collective, not to DeepSpeed
        "backward peak": lambda s: 16 * s.N / s.n + 2 * s.R + 4 * s.P + 2 * s.P,
        "step peak": lambda s: 16 * s.N / s.n + 2 * s.R + 6 * s.S,
    },
    "z3 g2": {"steady": lambda s: 16 * s.N / s.n + 2 * s.R, "last forward": lambda s: 16 * s.N / s.n + 2 * s.R},
    "z1 g1 fp32 sum": {
        "after init": lambda s: 6 * s.N + 4 * s.N / s.n,
        "steady": lambda s: 6 * s.N + 12 * s.N / s.n,
        "backward peak": lambda s: 10 * s.N + 12 * s.N / s.n,
        "step peak": lambda s: 8 * s.N + 12 * s.N / s.n,
    },
    "z1 g2 fp32 sum": {"last forward": lambda s: 8 * s.N + 12 * s.N / s.n},
    "z2 g1 fp32 sum": {
        "steady": lambda s: 2 * s.N + 12 * s.N / s.n,
        "backward peak": lambda s: 2 * s.N + 16 * s.N / s.n + 2 * s.R + 6 * s.P,
        "step peak": lambda s: 2 * s.N + 16 * s.N / s.n + 8 * s.P,
    },
    "z2 g2 fp32 sum": {
        "last forward": lambda s: 2 * s.N + 16 * s.N / s.n,
        "backward peak": lambda s: 2 * s.N + 16 * s.N / s.n + 2 * s.R + 6 * s.P,
    },
    "z3 g1 fp32 sum": {
        "steady": lambda s: 18 * s.N / s.n + 2 * s.R,
        "step peak": lambda s: 18 * s.N / s.n + 2 * s.R + 4 * s.S,
    },
    "z3 g2 fp32 sum": {"last forward": lambda s: 18 * s.N / s.n + 2 * s.R},
    "z0 fp32": {
        "after init": lambda s: 4 * s.N,
        "steady": lambda s: 12 * s.N,
        "backward peak": lambda s: 20 * s.N,
        "step peak": lambda s: 16 * s.N,
    },
    "z1 fp32": {
        "steady": lambda s: 4 * s.N + 12 * s.N / s.n,
        "backward peak": lambda s: 8 * s.N + 12 * s.N / s.n + 4 * s.Np + 4 * s.R,
    },
    "z2 fp32": {
        "steady": lambda s: 4 * s.N + 12 * s.N / s.n,
        "backward peak": lambda s: 4 * s.N + 12 * s.N / s.n + 4 * s.Np + 4 * s.R + 4 * s.P,
        "step peak": lambda s: 4 * s.N + 20 * s.N / s.n,
    },
    "z3 fp32": {
        "steady": lambda s: 20 * s.N / s.n + 4 * s.R,
        "step peak": lambda s: 20 * s.N / s.n + 4 * s.R + 4 * s.S,
    },
    "z1 g1 offload": {
        "steady": lambda s: 2 * s.N + 2 * s.P,
        "host": lambda s: 18 * s.N / s.n + 2 * s.P,
        "backward peak": lambda s: 4 * s.N + 2 * s.R + 10 * s.P,
    },
    "z2 g1 offload": {
        "steady": lambda s: 2 * s.N + 2 * s.P,
        "host": lambda s: 18 * s.N / s.n + 2 * s.P,
        "backward peak": lambda s: 2 * s.N + 2 * s.R + 12 * s.P,
        "step peak": lambda s: 2 * s.N + 2 * s.P,
    },
    "z2 g2 offload": {"steady": lambda s: 2 * s.N + 2 * s.P, "host": lambda s: 18 * s.N / s.n + 2 * s.Np + 2 * s.P},
    "z3 g1 offload": {
        "steady": lambda s: 2 * s.N / s.n + 2 * s.R,
        "host": lambda s: 18 * s.N / s.n,
        "step peak": lambda s: 2 * s.N / s.n + 2 * s.R,
    },
    "z3 g2 offload": {"steady": lambda s: 2 * s.N / s.n + 2 * s.R, "host": lambda s: 18 * s.N / s.n},
    "z3 g1 offload all": {"steady": lambda s: 2 * s.R, "host": lambda s: 20 * s.N / s.n},
    "z3 g1 small groups": {"step peak": lambda s: 16 * s.N / s.n + 2 * s.R + 6 * s.S},
}


@pytest.fixture(scope="module")
def records() -> Mapping[str, Record]:
    """Every configuration measured, by name."""
    return dict(zip(CONFIGURATIONS, measured(list(CONFIGURATIONS.values())), strict=True))


def symbols(record: Record) -> Symbols:
    return Symbols(
        N=record.parameters,
        n=record.world,
        P=record.largest,
        R=record.bucket,
        S=record.sub_group,
        Np=record.in_partition,
    )


@pytest.mark.parametrize(("name", "what"), [(name, what) for name in FORMULAS for what in FORMULAS[name]])
def test_the_formula_holds(records: Mapping[str, Record], name: str, what: str) -> None:
    expected = FORMULAS[name][what](symbols(records[name]))
    assert MEASURED[what](records[name]) == pytest.approx(expected, rel=TOLERANCE)


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_the_books_between_steps_name_every_byte(records: Mapping[str, Record], name: str) -> None:
    record = records[name]
    # What no category names: losses, norms, step counters.
    assert 0 <= record.step.after - sum(record.steady.values()) < 10_000


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_stages_train_the_same_model(records: Mapping[str, Record], name: str) -> None:
    # A model with random weights guesses: its loss is near log(2048) = 7.62.
    assert records[name].losses == pytest.approx([7.62] * len(records[name].losses), abs=0.6)
    peers = {"z1 g1", "z2 g1", "z1 g1 offload", "z2 g1 offload", "z2 g1 fp32 sum"}
    if name in peers:
        assert records[name].losses == pytest.approx(records["z1 g1"].losses, abs=0.02)
