"""Each rule on the smallest file where it bites: severity, key and whole message; notes are left out."""

from __future__ import annotations

from typing import Any

import pytest
from files import configuration, grave, zero

CASES: dict[str, tuple[Any, list[str]]] = {
    "removed": (
        configuration(amp={"enabled": False}),
        [
            (
                "error amp: was removed: DeepSpeed 0.19.8 refuses the file even where it is disabled; use "
                "fp16, bf16 or torch_autocast"
            ),
        ],
    ),
    "removed in zero": (
        zero(3, mics_shard_size=8),
        [
            (
                "error zero_optimization.mics_shard_size: was removed: DeepSpeed 0.19.8 refuses the file "
                "even where it is disabled; MiCS is gone; zero_hpz_partition_size keeps a second copy "
                "inside a node"
            ),
        ],
    ),
    "unknown refused": (
        zero(2, reduce_buket_size=5),
        [
            (
                "error zero_optimization.reduce_buket_size: unknown key: DeepSpeed refuses the file; did "
                "you mean 'reduce_bucket_size'?"
            ),
        ],
    ),
    "swapped words": (
        zero(2, comm_overlap=True),
        [
            (
                "error zero_optimization.comm_overlap: unknown key: DeepSpeed refuses the file; did you "
                "mean 'overlap_comm'?"
            ),
        ],
    ),
    "unknown skipped": (
        configuration(zero_optimisation={"stage": 3}),
        [
            (
                "warn zero_optimisation: unknown key: DeepSpeed skips it without a word; did you mean "
                "'zero_optimization'?"
            ),
        ],
    ),
    "misplaced": (
        configuration(overlap_comm=True),
        [
            "warn overlap_comm: unknown key: DeepSpeed skips it without a word; it belongs in zero_optimization",
        ],
    ),
    "unknown left open": (
        zero(2, foo="auto"),
        [
            "error zero_optimization.foo: unknown key: Hugging Face refuses the file",
        ],
    ),
    "fraction": (
        zero(3, sub_group_size=1.5),
        [
            (
                "error zero_optimization.sub_group_size: 1.5 does not pass, expected a whole number at "
                "least 0: DeepSpeed refuses the file"
            ),
        ],
    ),
    "range": (
        zero(3, zero_hpz_partition_size=-1),
        [
            (
                "error zero_optimization.zero_hpz_partition_size: -1 does not pass, expected a whole number "
                "at least 0: DeepSpeed refuses the file"
            ),
        ],
    ),
    "null": (
        zero(2, reduce_scatter=None),
        [
            (
                "error zero_optimization.reduce_scatter: null does not pass, expected true or false: "
                "DeepSpeed refuses the file"
            ),
        ],
    ),
    "choice": (
        zero(3, offload_optimizer={"device": "CPU"}),
        [
            (
                "error zero_optimization.offload_optimizer.device: 'CPU' does not pass, expected one of "
                "none, cpu, nvme: DeepSpeed refuses the file"
            ),
        ],
    ),
    "number in quotes at the top": (
        configuration(gradient_clipping="1.0"),
        [
            (
                "error gradient_clipping: '1.0' does not pass, expected a number without quotes: the run "
                "fails where it is used"
            ),
        ],
    ),
    "number in quotes in a block": (
        zero(2, reduce_bucket_size="50000000"),
        [
            (
                "warn zero_optimization.reduce_bucket_size: text '50000000' passes for a number today; "
                "write it without quotes"
            ),
        ],
    ),
    "too large": (
        zero(2, reduce_bucket_size=10**40),
        [
            (
                "error zero_optimization.reduce_bucket_size: 10000000000000000000000000000000000000000 does "
                "not pass, expected a number of at most 63 bits: the run fails where it is used"
            ),
        ],
    ),
    "block that is none": (
        configuration(fp16=True),
        [
            "error fp16: true does not pass, expected a block: DeepSpeed refuses the file",
        ],
    ),
    "bad dtype on the wire": (
        configuration(communication_data_type="fp64"),
        [
            (
                "error communication_data_type: 'fp64' does not pass, expected one of fp16, bf16, fp32: "
                "DeepSpeed refuses the file"
            ),
        ],
    ),
    "switch in quotes": (
        zero(2, overlap_comm="true"),
        [
            "warn zero_optimization.overlap_comm: text 'true' passes for true today; write true without quotes",
        ],
    ),
    "false in quotes": (
        configuration(zero_allow_untested_optimizer="false"),
        [
            (
                "error zero_allow_untested_optimizer: text 'false' counts as true, as any text does; write "
                "true or false without quotes"
            ),
        ],
    ),
    "combined switch in quotes": (
        configuration(wall_clock_breakdown="true"),
        [
            (
                "error wall_clock_breakdown: text 'true' where a switch is combined with others: DeepSpeed "
                "refuses the file"
            ),
        ],
    ),
    "old name": (
        zero(2, cpu_offload=True),
        [
            (
                "warn zero_optimization.cpu_offload: is an old name that is still converted; write "
                "zero_optimization.offload_optimizer"
            ),
        ],
    ),
    "old and new name": (
        zero(2, cpu_offload=True, offload_optimizer={"device": "cpu"}),
        [
            (
                "error zero_optimization.cpu_offload: stands beside zero_optimization.offload_optimizer, "
                "its new name: DeepSpeed refuses both together"
            ),
        ],
    ),
    "ignored old name": (
        zero(2, cpu_offload_use_pin_memory=True),
        [
            ("warn zero_optimization.cpu_offload_use_pin_memory: is ignored; pin_memory in the offload blocks says it"),
        ],
    ),
    "two names": (
        zero(3, prefetch_bucket_size=1, stage3_prefetch_bucket_size=2),
        [
            (
                "error zero_optimization.prefetch_bucket_size: is another name of "
                "stage3_prefetch_bucket_size, which stands in the file too: DeepSpeed refuses both together"
            ),
        ],
    ),
    "auto that nobody fills in": (
        zero(2, allgather_bucket_size="auto"),
        [
            (
                'error zero_optimization.allgather_bucket_size: "auto" is filled in by nobody: Hugging Face '
                "refuses the file, DeepSpeed alone takes its default, 500000000"
            ),
        ],
    ),
    "no batch size": (
        configuration(train_micro_batch_size_per_gpu=None),
        [
            (
                "error train_batch_size: neither train_batch_size nor train_micro_batch_size_per_gpu is "
                "given: DeepSpeed refuses the file"
            ),
        ],
    ),
    "negative": (
        configuration(train_micro_batch_size_per_gpu=-1),
        [
            "error train_micro_batch_size_per_gpu: -1 is not above 0: DeepSpeed refuses the file",
        ],
    ),
    "nothing left": (
        configuration(train_micro_batch_size_per_gpu=None, train_batch_size=8),
        [
            (
                "error train_batch_size: train_batch_size 8 and gradient_accumulation_steps 2 on 8 ranks "
                "leave train_micro_batch_size_per_gpu 0: DeepSpeed refuses the file"
            ),
        ],
    ),
    "does not divide": (
        configuration(train_batch_size=30, train_micro_batch_size_per_gpu=None, gradient_accumulation_steps=3),
        [
            (
                "error train_batch_size: 30 is not 1 × 3 × 8 ranks = 24: DeepSpeed refuses the file; these "
                "sizes fit 1, 2, 5, 10 ranks"
            ),
        ],
    ),
    "product differs": (
        configuration(train_batch_size=64, train_micro_batch_size_per_gpu=4, gradient_accumulation_steps=4),
        [
            (
                "error train_batch_size: 64 is not 4 × 4 × 8 ranks = 128: DeepSpeed refuses the file; these "
                "sizes fit 4 ranks only"
            ),
        ],
    ),
    "infinite": (
        configuration(gradient_accumulation_steps=float("inf")),
        [
            ("error gradient_accumulation_steps: inf is no number of sequences or steps: DeepSpeed refuses the file"),
        ],
    ),
    "fraction of a step": (
        configuration(gradient_accumulation_steps=2.0),
        [
            "warn gradient_accumulation_steps: 2.0 passes the parser but counts are whole: write 2",
        ],
    ),
    "half open": (
        configuration(train_batch_size=16, gradient_accumulation_steps="auto"),
        [
            (
                "warn train_batch_size: is fixed while gradient_accumulation_steps is left to the trainer: "
                "Hugging Face refuses a product that differs"
            ),
        ],
    ),
    "unmanaged": (
        configuration(
            managed_gradient_accumulation=False,
            zero_optimization={"stage": 1, "overlap_comm": True, "reduce_bucket_size": 50_000_000},
        ),
        [
            (
                "error managed_gradient_accumulation: false goes with overlap_comm only from ZeRO stage 2 "
                "on: the engine refuses it"
            ),
        ],
    ),
    "both precisions": (
        configuration(fp16={"enabled": True}),
        [
            "error fp16.enabled: bf16 is enabled too: DeepSpeed refuses both together",
            "error bf16.enabled: fp16 is enabled too: DeepSpeed refuses both together",
        ],
    ),
    "no precision": (
        {name: value for name, value in configuration().items() if name != "bf16"},
        [
            ("warn bf16: neither bf16 nor fp16 is in the file: DeepSpeed trains in fp32 unless the trainer adds one"),
        ],
    ),
    "fp16 left open alone": (
        configuration(bf16=None, fp16={"enabled": "auto"}),
        [
            (
                'warn fp16.enabled: is "auto" without a bf16 block: a trainer that runs bf16 leaves '
                'DeepSpeed in fp32; add "bf16": {"enabled": "auto"}'
            ),
        ],
    ),
    "static scale": (
        configuration(bf16={"enabled": False}, fp16={"enabled": True, "loss_scale": 0.5}),
        [
            (
                "warn fp16.loss_scale: a static loss scale of 0.5, below 1 it shrinks gradients: 0 lets it "
                "follow the gradients"
            ),
        ],
    ),
    "first scale": (
        configuration(bf16={"enabled": False}, fp16={"enabled": True, "initial_scale_power": 32}),
        [
            (
                "warn fp16.initial_scale_power: the first loss scale is 2^32: fp16 ends at 65504, so the "
                "first steps overflow and are skipped; 16 is the default"
            ),
        ],
    ),
    "no window": (
        configuration(bf16={"enabled": False}, fp16={"enabled": True, "loss_scale_window": 0}),
        [
            (
                "error fp16.loss_scale_window: 0 is not above 0 while the loss scale is dynamic: DeepSpeed "
                "refuses the file"
            ),
        ],
    ),
    "boolean scale": (
        configuration(fp16={"enabled": False, "loss_scale": True}),
        [
            "error fp16.loss_scale: true does not pass, expected a number at least 0: DeepSpeed refuses the file",
        ],
    ),
    "autocast": (
        configuration(torch_autocast={"enabled": True}),
        [
            "warn torch_autocast.enabled: bf16 is enabled too: autocast expects an fp32 model",
        ],
    ),
    "masters at stage 0": (
        configuration(zero_optimization={"stage": 0}, bf16={"enabled": True, "bf16_master_weights_and_grads": True}),
        [
            "error bf16.bf16_master_weights_and_grads: needs ZeRO stage 1, 2 or 3: DeepSpeed refuses the file",
        ],
    ),
    "masters on the GPU": (
        configuration(bf16={"enabled": True, "bf16_master_weights_and_grads": True}),
        [
            (
                "error bf16.bf16_master_weights_and_grads: needs the optimizer offloaded to the host with "
                "DeepSpeedCPUAdam: the engine refuses it"
            ),
        ],
    ),
    "states without masters": (
        configuration(bf16={"enabled": True, "bf16_optimizer_states": True}),
        [
            "error bf16.bf16_optimizer_states: needs bf16_master_weights_and_grads: DeepSpeed refuses the file",
        ],
    ),
    "accumulation at stage 0": (
        configuration(zero_optimization={"stage": 0}, data_types={"grad_accum_dtype": "fp32"}),
        [
            (
                "error data_types.grad_accum_dtype: without ZeRO a bf16 model accumulates in bf16 only: the "
                "engine refuses fp32"
            ),
        ],
    ),
    "accumulation at stage 1": (
        configuration(
            zero_optimization={"stage": 1, "reduce_bucket_size": 50_000_000}, data_types={"grad_accum_dtype": "fp32"}
        ),
        [
            (
                "warn data_types.grad_accum_dtype: fp32 at ZeRO stage 1 switches to an optimizer that keeps "
                "4 bytes of gradient per parameter unsharded on each GPU, and drops an offload to nvme"
            ),
        ],
    ),
    "accumulation of no kind": (
        configuration(data_types={"grad_accum_dtype": "float12"}),
        [
            (
                "error data_types.grad_accum_dtype: 'float12' does not pass, expected one of fp16, fp32, "
                "bf16, float16, float32, bfloat16, half, float, torch.float16, torch.float32, "
                "torch.bfloat16: the run fails where it is used"
            ),
        ],
    ),
    "parameter dtype": (
        configuration(data_types={"param_dtype": "fp32"}),
        [
            "error data_types.param_dtype: 'fp32' contradicts the enabled precision, bf16: the engine refuses it",
        ],
    ),
    "sum": (
        configuration(gradient_allreduce_op="sum", zero_optimization={"stage": 3, "reduce_bucket_size": 50_000_000}),
        [
            "error gradient_allreduce_op: sum does not go with ZeRO stage 3: DeepSpeed refuses the file",
        ],
    ),
    "prescaled": (
        configuration(prescale_gradients=True),
        [
            "error prescale_gradients: does not go with reduce_scatter at ZeRO stage 2: the engine refuses it",
        ],
    ),
    "divided before": (
        configuration(gradient_predivide_factor=2.0),
        [
            (
                "error gradient_predivide_factor: other than 1 does not go with reduce_scatter at ZeRO "
                "stage 2: the engine refuses it"
            ),
        ],
    ),
    "true as a stage": (
        configuration(zero_optimization=True),
        [
            'warn zero_optimization: true is an old spelling that DeepSpeed takes as stage 1; write {"stage": 1}',
        ],
    ),
    "stage left open": (
        configuration(zero_optimization={"stage": "auto", "reduce_bucket_size": 50_000_000}),
        [
            "warn zero_optimization.stage: 'auto' is filled in by Accelerate only; elsewhere ZeRO stays off",
        ],
    ),
    "keys of stage 3": (
        zero(2, stage3_prefetch_bucket_size=10),
        [
            "warn zero_optimization.stage3_prefetch_bucket_size: only stage 3 reads it: no effect at stage 2",
        ],
    ),
    "second copy too wide": (
        zero(3, zero_hpz_partition_size=16),
        [
            (
                "warn zero_optimization.zero_hpz_partition_size: 16 is more than the 8 ranks and is cut to "
                "8; it adds 2/8 bytes per parameter and saves traffic only as the GPUs of one node"
            ),
        ],
    ),
    "second copy does not divide": (
        zero(3, zero_hpz_partition_size=3),
        [
            "error zero_optimization.zero_hpz_partition_size: 3 does not divide 8 ranks: the engine refuses it",
        ],
    ),
    "second copy below stage 3": (
        zero(2, zero_hpz_partition_size=8),
        [
            "warn zero_optimization.zero_hpz_partition_size: only stage 3 reads it: no effect at stage 2",
        ],
    ),
    "quantized below stage 3": (
        zero(2, zero_quantized_weights=True),
        [
            "warn zero_optimization.zero_quantized_weights: only stage 3 reads it: no effect at stage 2",
        ],
    ),
    "quantized gradients": (
        zero(3, zero_quantized_gradients=True),
        [
            (
                "warn zero_optimization.zero_quantized_gradients: gradients travel in 4 bits between nodes: "
                "numerics change"
            ),
        ],
    ),
    "quantized without scatter": (
        zero(3, zero_quantized_gradients=True, reduce_scatter=False),
        [
            "error zero_optimization.zero_quantized_gradients: needs reduce_scatter: the engine refuses it",
        ],
    ),
    "no norm at stage 3": (
        zero(3, compute_grad_norm=False),
        [
            (
                "error zero_optimization.compute_grad_norm: false goes with stages 1 and 2 only, this is "
                "stage 3: DeepSpeed refuses the file"
            ),
        ],
    ),
    "no norm with clipping": (
        zero(2, compute_grad_norm=False),
        [
            (
                "error zero_optimization.compute_grad_norm: false needs gradient_clipping 0, which is 1: "
                "the engine refuses it"
            ),
        ],
    ),
    "old stage 1": (
        zero(1, legacy_stage1=True),
        [
            "error zero_optimization.legacy_stage1: the old stage 1 is gone: the engine refuses it",
        ],
    ),
    "elastic": (
        zero(3, elastic_checkpoint=True),
        [
            "warn zero_optimization.elastic_checkpoint: stage 3 has no elastic checkpoints any more: no effect",
        ],
    ),
    "pipeline": (
        configuration(pipeline={"stages": 4}),
        [
            (
                "warn pipeline: a pipeline model runs at ZeRO stage 0 or 1 only, this is stage 2; other "
                "models skip the block"
            ),
        ],
    ),
    "muon": (
        configuration(
            zero_optimization={"stage": 3, "reduce_bucket_size": 50_000_000},
            optimizer={"type": "Muon", "params": {"lr": 0.01}},
        ),
        [
            (
                "error zero_optimization.reduce_scatter: Muon at stage 3 needs it false: the engine refuses "
                "both together"
            ),
        ],
    ),
    "bucket of one": (
        zero(2, reduce_bucket_size=1),
        [
            (
                "error zero_optimization.reduce_bucket_size: a bucket of 1 elements launches a collective "
                "for next to nothing: the run crawls"
            ),
        ],
    ),
    "small bucket": (
        zero(2, reduce_bucket_size=10_000),
        [
            ("warn zero_optimization.reduce_bucket_size: a bucket of 10000 elements is small: many short collectives"),
        ],
    ),
    "bucket of a billion": (
        zero(2, reduce_bucket_size=10**9, overlap_comm=True),
        [
            "warn zero_optimization.reduce_bucket_size: sizes are elements: 1e+09 hold 3.7 GiB on each GPU",
        ],
    ),
    "sub-group of one": (
        zero(3, sub_group_size=1),
        [
            (
                "error zero_optimization.sub_group_size: a sub-group of 1 elements runs the optimizer once "
                "for next to nothing: the run crawls"
            ),
        ],
    ),
    "no sub-groups": (
        zero(3, sub_group_size=1e12),
        [
            (
                "warn zero_optimization.sub_group_size: 1e+12 elements mean no sub-groups: the step holds "
                "up to 6 bytes per element of the whole shard at once"
            ),
        ],
    ),
    "prefetch of a billion": (
        zero(3, stage3_prefetch_bucket_size=1e9),
        [
            (
                "warn zero_optimization.stage3_prefetch_bucket_size: gathers 1e+09 elements ahead, up to "
                "3.7 GiB on each GPU; the default is 5e7"
            ),
        ],
    ),
    "much stays whole": (
        zero(3, stage3_param_persistence_threshold=1e7),
        [
            (
                "warn zero_optimization.stage3_param_persistence_threshold: tensors of up to 1e+07 elements "
                "stay whole on every GPU; the default is 1e5"
            ),
        ],
    ),
    "much stays gathered": (
        zero(3, stage3_max_reuse_distance=3e9),
        [
            (
                "warn zero_optimization.stage3_max_reuse_distance: up to 3e+09 gathered elements stay on "
                "each GPU, 5.6 GiB; the default is 1e9"
            ),
        ],
    ),
    "odd": (
        zero(2, allgather_bucket_size=499_999_999),
        [
            "error zero_optimization.allgather_bucket_size: 499999999 is odd: the engine refuses it",
        ],
    ),
    "parameters below stage 3": (
        zero(2, offload_param={"device": "cpu"}),
        [
            (
                "error zero_optimization.offload_param: parameters are offloaded at stage 3 only: at stage "
                "2 the block is accepted without a word and they all stay on the GPU"
            ),
        ],
    ),
    "offload without ZeRO": (
        configuration(zero_optimization={"stage": 0, "offload_optimizer": {"device": "cpu"}}),
        [
            (
                "error zero_optimization.offload_optimizer: without ZeRO nothing is offloaded, yet "
                "DeepSpeed takes its CPU optimizer, which fails on parameters on the GPU"
            ),
        ],
    ),
    "no path": (
        zero(3, offload_optimizer={"device": "nvme"}),
        [
            (
                "error zero_optimization.offload_optimizer.nvme_path: device nvme needs it: the engine "
                "stops where it is missing"
            ),
        ],
    ),
    "nvme at stage 2": (
        zero(2, offload_optimizer={"device": "nvme", "nvme_path": "/nvme"}),
        [
            (
                "warn zero_optimization.offload_optimizer.device: stage 2 takes nvme as cpu without a word: "
                "the states fill host memory"
            ),
        ],
    ),
    "ratio at stage 2": (
        zero(2, offload_optimizer={"device": "cpu", "ratio": 0.3}),
        [
            (
                "error zero_optimization.offload_optimizer.ratio: 0.3 keeps a part on the GPU, which stage "
                "3 alone can: DeepSpeed refuses the file"
            ),
        ],
    ),
    "ratio with a schedule": (
        configuration(
            zero_optimization={
                "stage": 3,
                "reduce_bucket_size": 50_000_000,
                "offload_optimizer": {"device": "cpu", "ratio": 0.3},
            },
            scheduler={"type": "WarmupLR", "params": {}},
        ),
        [
            (
                "warn zero_optimization.offload_optimizer.ratio: the part on the GPU does not follow the "
                "learning rate schedule of its first parameter group"
            ),
        ],
    ),
    "parameters before states": (
        zero(3, offload_param={"device": "cpu"}),
        [
            (
                "warn zero_optimization.offload_optimizer.device: parameters are offloaded while the "
                "optimizer states, about six times as large, stay on the GPU"
            ),
        ],
    ),
    "swap buffers": (
        zero(
            3,
            offload_optimizer={"device": "cpu"},
            offload_param={"device": "nvme", "nvme_path": "/nvme", "buffer_size": 1, "max_in_cpu": 1},
        ),
        [
            (
                "error zero_optimization.offload_param.buffer_size: a buffer of 1 elements holds no "
                "parameter's partition: the run stops at the first one"
            ),
            (
                "warn zero_optimization.offload_param.max_in_cpu: keeps 1 elements in host memory, next to "
                "nothing; 0 says none, the default is 1e9"
            ),
        ],
    ),
    "optimizer buffers": (
        zero(3, offload_optimizer={"device": "nvme", "nvme_path": "/nvme", "buffer_count": 2}),
        [
            (
                "warn zero_optimization.offload_optimizer.buffer_count: 2 buffers are fewer than Adam's "
                "four (parameter, gradient, two moments)"
            ),
        ],
    ),
    "super offload below": (
        zero(2, offload_optimizer={"device": "cpu", "super_offload": True}),
        [
            "warn zero_optimization.offload_optimizer.super_offload: only stage 3 reads it: no effect at stage 2",
        ],
    ),
    "super offload with clipping": (
        zero(3, offload_optimizer={"device": "cpu", "super_offload": True}),
        [
            (
                "warn zero_optimization.offload_optimizer.super_offload: the optimizer on the host overlaps "
                "backward only with gradient_clipping 0, which is 1"
            ),
        ],
    ),
    "zenflow alone": (
        zero(2, zenflow={"topk_ratio": 0.1}),
        [
            "error zero_optimization.zenflow: needs the optimizer offloaded to the host: the engine refuses it",
        ],
    ),
    "zenflow range": (
        zero(2, offload_optimizer={"device": "cpu"}, zenflow={"topk_ratio": 1.0, "update_interval": 0}),
        [
            (
                "error zero_optimization.zenflow.topk_ratio: 1.0 does not pass, expected a number above 0 "
                "and below 1: DeepSpeed refuses the file"
            ),
            (
                "error zero_optimization.zenflow.update_interval: 0 does not pass, expected a whole number "
                'or "auto" at least 1: DeepSpeed refuses the file'
            ),
            "warn zero_optimization.zenflow: most gradients are applied late: numerics change",
        ],
    ),
    "lamb on the host": (
        configuration(
            zero_optimization={"stage": 2, "reduce_bucket_size": 50_000_000, "offload_optimizer": {"device": "cpu"}},
            zero_allow_untested_optimizer=True,
            optimizer={"type": "Lamb"},
        ),
        [
            "error optimizer.type: Lamb has no kernel for the host: it cannot update offloaded states",
        ],
    ),
    "removed optimizer": (
        configuration(optimizer={"type": "OneBitAdam"}),
        [
            (
                "error optimizer.type: 'OneBitAdam' is no optimizer: the engine refuses it; 1-bit "
                "optimizers were removed; take AdamW"
            ),
        ],
    ),
    "chosen class": (
        configuration(optimizer={"type": "FusedAdam"}),
        [
            (
                "error optimizer.type: 'FusedAdam' is no optimizer: the engine refuses it; write Adam or "
                "AdamW, DeepSpeed picks the class itself"
            ),
        ],
    ),
    "misspelled optimizer": (
        configuration(optimizer={"type": "Adamm"}),
        [
            "error optimizer.type: 'Adamm' is no optimizer: the engine refuses it; did you mean 'Adam'?",
        ],
    ),
    "untested optimizer": (
        configuration(optimizer={"type": "SGD"}),
        [
            (
                "error optimizer.type: SGD is not tested with ZeRO: the engine refuses it without "
                "zero_allow_untested_optimizer"
            ),
        ],
    ),
    "clipping as an argument": (
        configuration(optimizer={"type": "Adam", "params": {"max_grad_norm": 1.0}}),
        [
            (
                "error optimizer.params.max_grad_norm: is no optimizer argument: the engine refuses it; "
                "write gradient_clipping 1"
            ),
        ],
    ),
    "argument of no optimizer": (
        configuration(optimizer={"type": "Adam", "params": {"weight_decy": 0.1}}),
        [
            (
                "error optimizer.params.weight_decy: adam takes no such argument: the engine refuses it; "
                "did you mean 'weight_decay'?"
            ),
        ],
    ),
    "no type": (
        configuration(optimizer={"params": {"lr": 0.1}}),
        [
            "warn optimizer.type: not given: DeepSpeed skips the optimizer block",
        ],
    ),
    "misspelled schedule": (
        configuration(scheduler={"type": "WarmupDecayLr", "params": {}}),
        [
            (
                "error scheduler.type: 'WarmupDecayLr' is no schedule of DeepSpeed or torch: the engine "
                "refuses it; did you mean 'WarmupDecayLR'?"
            ),
        ],
    ),
    "no arguments": (
        configuration(scheduler={"type": "WarmupLR"}),
        [
            "error scheduler.params: WarmupLR is made from it: the engine fails without",
        ],
    ),
    "argument left out": (
        configuration(scheduler={"type": "WarmupDecayLR", "params": {}}),
        [
            "error scheduler.params.total_num_steps: WarmupDecayLR needs it: the engine fails without",
        ],
    ),
    "argument of another": (
        configuration(scheduler={"type": "WarmupLR", "params": {"total_num_steps": 5}}),
        [
            (
                "error scheduler.params.total_num_steps: WarmupLR takes no such argument: the engine fails "
                "on it; it belongs to WarmupDecayLR and WarmupCosineLR"
            ),
        ],
    ),
    "warmup": (
        configuration(scheduler={"type": "WarmupDecayLR", "params": {"total_num_steps": 5, "warmup_num_steps": 9}}),
        [
            "warn scheduler.params.total_num_steps: 5 steps end before the warmup of 9 does",
        ],
    ),
    "warmup of a fraction": (
        configuration(scheduler={"type": "WarmupLR", "params": {"warmup_num_steps": 9.0, "warmup_type": "cosine"}}),
        [
            "error scheduler.params.warmup_num_steps: 9.0 is no whole number: the engine refuses it",
            "warn scheduler.params.warmup_type: 'cosine' is no shape, log is taken; expected log or linear",
        ],
    ),
    "contiguous": (
        configuration(activation_checkpointing={"contiguous_memory_optimization": True}),
        [
            (
                "warn activation_checkpointing.contiguous_memory_optimization: asserts "
                "partition_activations true once a model uses DeepSpeed's checkpointing; the parser lets it "
                "pass"
            ),
            (
                "warn activation_checkpointing.number_checkpoints: contiguous_memory_optimization asserts "
                "the number of layers; the parser lets it pass"
            ),
            (
                "warn activation_checkpointing: has no effect on Hugging Face models: only "
                "gradient_checkpointing=True of the trainer recomputes activations"
            ),
        ],
    ),
    "block for other models": (
        configuration(activation_checkpointing={"partition_activations": True}),
        [
            (
                "warn activation_checkpointing: has no effect on Hugging Face models: only "
                "gradient_checkpointing=True of the trainer recomputes activations"
            ),
        ],
    ),
    "curriculum": (
        configuration(data_efficiency={"data_sampling": {"curriculum_learning": {"enabled": True}}}),
        [
            (
                "error data_efficiency.data_sampling.curriculum_learning.curriculum_metrics: the block is "
                "enabled and needs it: DeepSpeed refuses the file"
            ),
        ],
    ),
    "autotuning": (
        configuration(autotuning={"results_dir": ""}),
        [
            "error autotuning.results_dir: is empty: DeepSpeed refuses the file",
        ],
    ),
    "compiled offloads": (
        configuration(compile={"offload_activation": True, "offload_parameters": True}),
        [
            (
                "error compile.offload_activation: does not go with offload_opt_states or "
                "offload_parameters: the engine refuses it"
            ),
        ],
    ),
    "compile without ZeRO": (
        configuration(zero_optimization={"stage": 0}, compile={"deepcompile": True}),
        [
            "warn compile.deepcompile: works on ZeRO stages 1 to 3: no effect without",
        ],
    ),
    "tensor parallel": (
        configuration(tensor_parallel={"autotp_size": 3}),
        [
            "error tensor_parallel.autotp_size: 3 does not divide 8 ranks",
        ],
    ),
    "tag": (
        configuration(checkpoint={"tag_validation": "strict"}),
        [
            (
                "error checkpoint.tag_validation: 'strict' does not pass, expected one of WARN, IGNORE, "
                "FAIL: DeepSpeed refuses the file"
            ),
        ],
    ),
    "comment": (
        '{\n  // a remark\n  "train_batch_size": 8, "bf16": {"enabled": true}\n}',
        [
            (
                "error json: not JSON: the file has a comment (line 2), which DeepSpeed's own reader "
                "(Hjson) takes and Hugging Face's json.load refuses"
            ),
        ],
    ),
    "trailing comma": (
        '{"train_batch_size": 8, "bf16": {"enabled": true},}',
        [
            (
                "error json: not JSON: the file has a trailing comma (line 1), which DeepSpeed's own reader "
                "(Hjson) takes and Hugging Face's json.load refuses"
            ),
        ],
    ),
    "twice": (
        '{"train_batch_size": 8, "train_batch_size": 8, "bf16": {"enabled": true}}',
        [
            (
                "error train_batch_size: stands twice, again in line 1: DeepSpeed refuses the file, and a "
                "reader that does not keeps the last value without a word"
            ),
        ],
    ),
    "broken": (
        '{"train_batch_size": 8',
        [
            "error json: not JSON: line 1, '}' is missing at the end; nothing can read this file",
        ],
    ),
    "list": (
        "[1]",
        [
            "error json: the top of the file is no mapping of keys to values",
        ],
    ),
    "bare": (
        "{train_batch_size: 8\n bf16: {enabled: true}}",
        [
            (
                "error json: not JSON: the file has a key without quotes (line 1) and a missing comma (line "
                "2), which DeepSpeed's own reader (Hjson) takes and Hugging Face's json.load refuses"
            ),
        ],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_a_rule_says(case: str) -> None:
    content, expected = CASES[case]
    assert grave(content) == expected


def test_a_sound_file_has_notes_only() -> None:
    for stage in (1, 2, 3):
        assert grave(zero(stage)) == []
