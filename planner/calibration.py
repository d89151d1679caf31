"""What measured runs of a machine say about its times: multiples of the catalogs' figures, and what those leave out."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Calibration:
    """Multiples of the catalogs' times on one kind of GPU, by what takes the time, and seconds that no term holds.

    `products`: matrix products of 16 bits and more, `narrow_products`: the others. `attention`: fused kernels.
    `memory`: passes over what grows with the tokens, `weights`: those over weights, gradients and optimizer states.
    `launches`: the host's work before the GPU's. `inside_node`, `between_nodes`: collectives. `host_link`: copies to
    host memory and back. `cpu_optimizer`, `nvme`: the update on the host, and its drives. `micro_batch_seconds`,
    `step_seconds`: constants of each micro-batch and each optimizer step.
    """

    products: float = 1.0
    narrow_products: float = 1.0
    attention: float = 1.0
    memory: float = 1.0
    weights: float = 1.0
    launches: float = 1.0
    inside_node: float = 1.0
    between_nodes: float = 1.0
    host_link: float = 1.0
    cpu_optimizer: float = 1.0
    nvme: float = 1.0
    micro_batch_seconds: float = 0.0
    step_seconds: float = 0.0
