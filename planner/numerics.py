"""Number formats and optimizers as facts, in bytes and FLOP per parameter.

Pure data, filled from `catalogs/precisions.yaml` and `catalogs/optimizers.yaml`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Precision:
    """One number format of training.

    `dtype`: how the layers' parameters and activations are stored (fp32, fp16, bf16). Bytes per parameter:
    `compute_bytes` of the layers' copy, `gradient_bytes` of its gradient, `master_bytes` of the further fp32 copy that
    the optimizer updates (0: none). `peak`: key of `Gpu.peak` at which matrix products run.
    """

    key: str
    dtype: str
    compute_bytes: int
    gradient_bytes: int
    master_bytes: int
    peak: str
    summary: str = ""
    assumptions: tuple[str, ...] = ()


@dataclass(frozen=True)
class Optimizer:
    """One optimizer, per trainable parameter.

    `state_bytes_per_parameter`: bytes between steps beside master copy and gradient. `temporary_bytes_per_parameter`:
    bytes that a step allocates for every parameter it updates at once; `temporary_bytes_of_largest`: bytes per element
    of the largest tensor only. `step_flops_per_parameter`, `step_bytes_per_parameter`: FLOP and bytes of device memory
    traffic of one update, without the write of a 16-bit copy; `step_bandwidth_share`: share of what streaming reaches
    that its kernels do. `paged`: states may live in host memory.
    `fixed_state_bytes`: the states' size does not follow the parameters' precision (8-bit and factored states).
    `newton_schulz_iterations`: rounds on whole matrices, 0 for an optimizer that works element by element.
    """

    key: str
    state_bytes_per_parameter: float
    step_flops_per_parameter: float
    step_bytes_per_parameter: float
    step_bandwidth_share: float = 1.0
    temporary_bytes_per_parameter: float = 0.0
    temporary_bytes_of_largest: float = 0.0
    paged: bool = False
    newton_schulz_iterations: int = 0
    fixed_state_bytes: bool = False
    summary: str = ""
    assumptions: tuple[str, ...] = ()
