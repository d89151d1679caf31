"""A step's seconds by term, from plain records: on processors with gloo, on a GPU with NCCL."""

from __future__ import annotations

import pytest

from planner.errors import InputError
from planner.verify.step_profile import Profile, Spent, operation, profile
from planner.verify.trace_events import Event

MAIN, GLOO, STREAM, OTHER_STREAM = "1/1", "1/2", "0/7", "0/20"


def marked(name: str, start: float, end: float) -> Event:
    return Event(f"planner: {name}", "user_annotation", start, end, MAIN)


def operator(name: str, start: float, end: float, thread: str = MAIN) -> Event:
    return Event(name, "cpu_op", start, end, thread)


def gloo(name: str, start: float, end: float) -> Event:
    return Event(f"gloo:{name}", "user_annotation", start, end, GLOO)


PASSES = (
    marked("step", 0, 100), marked("forward", 0, 30), marked("backward", 30, 80), marked("optimizer_step", 80, 100),
)  # fmt: skip


def test_operators_count_in_their_pass() -> None:
    """Forward 10 to 20 and 22 to 25; the product inside the first one is part of it."""
    found = profile(
        [*PASSES, operator("aten::linear", 10, 20), operator("aten::mm", 12, 18), operator("aten::add", 22, 25),
         operator("aten::mm", 40, 60), operator("aten::_fused_adamw_", 85, 95)],
        on_gpu=False,
    )  # fmt: skip
    assert found == Profile(
        seconds=100,
        terms={"forward compute": Spent(13, 2), "backward compute": Spent(20, 1), "optimizer": Spent(10, 1)},
        hidden=0, nothing=57,
    )  # fmt: skip


def test_wrappers_of_autograd_are_not_work() -> None:
    events = [*PASSES, operator("autograd::engine::evaluate_function: MmBackward0", 30, 70),
              operator("MmBackward0", 31, 69), operator("aten::mm", 40, 44)]  # fmt: skip
    assert profile(events, on_gpu=False).terms == {"backward compute": Spent(4, 1)}


def test_checkpointed_layers_in_backward_are_recomputed() -> None:
    """The same layers from 5 to 15 in forward, and again from 40 to 50."""
    events = [
        *PASSES, marked("checkpointed layers", 5, 15), operator("aten::mm", 6, 10),
        marked("checkpointed layers", 40, 50), operator("aten::mm", 41, 45), operator("aten::mm", 55, 60),
    ]  # fmt: skip
    assert profile(events, on_gpu=False).terms == {
        "forward compute": Spent(4, 1), "backward compute": Spent(5, 1), "recomputation": Spent(4, 1),
    }  # fmt: skip


def test_gloo_works_through_calls_in_order() -> None:
    """Gloo calls a reduce-scatter an all-reduce; of 40 seconds of sending 10 run beside backward's product.

    50 seconds of work and 20 of compute with 10 at once: 60 busy, 40 not.
    """
    events = [
        *PASSES, operator("c10d::_reduce_scatter_base_", 30, 31), operator("c10d::allreduce_", 80, 81),
        operator("c10d::barrier", 98, 99), gloo("all_reduce", 40, 60), gloo("all_reduce", 80, 90),
        operator("aten::mm", 35, 50), operator("aten::copy_", 82, 84, GLOO),
    ]  # fmt: skip
    assert profile(events, on_gpu=False) == Profile(
        seconds=100,
        terms={"backward compute": Spent(15, 1), "all-reduce": Spent(10, 1), "reduce-scatter": Spent(20, 1)},
        hidden=10, nothing=65,
    )  # fmt: skip


def test_work_of_another_number_keeps_its_own_name() -> None:
    call, works = operator("c10d::_allgather_base_", 30, 31), [gloo("all_gather", 40, 60), gloo("broadcast", 60, 61)]
    events = [*PASSES, call, *works]
    assert profile(events, on_gpu=False).terms == {"all-gather": Spent(20, 1), "broadcast": Spent(1, 1)}


def launched(number: int, moment: float) -> Event:
    return Event("cudaLaunchKernel", "cuda_runtime", moment, moment + 0.1, MAIN, number)


def kernel(name: str, number: int, start: float, end: float, stream: str = STREAM, kind: str = "kernel") -> Event:
    return Event(name, kind, start, end, stream, number)


def test_a_kernel_counts_where_it_was_launched() -> None:
    """Launched in forward at 29 it runs from 32 to 50, in backward's time; operators of the host do not count."""
    events = [*PASSES, operator("aten::mm", 28, 30), launched(1, 29), kernel("sm90_gemm", 1, 32, 50),
              launched(2, 45), kernel("sm90_gemm", 2, 50, 55)]  # fmt: skip
    assert profile(events, on_gpu=True) == Profile(
        seconds=100, terms={"forward compute": Spent(18, 1), "backward compute": Spent(5, 1)}, hidden=0, nothing=77
    )


def test_collectives_beside_compute_are_hidden() -> None:
    """Gather 35 to 55 beside a kernel from 40 to 70: 20 + 30 busy in 35 seconds, 15 hidden."""
    events = [
        *PASSES, launched(1, 34), kernel("ncclDevKernel_AllGather_RING_LL(Storage)", 1, 35, 55, OTHER_STREAM),
        launched(2, 39), kernel("flash_bwd", 2, 40, 70),
    ]  # fmt: skip
    assert profile(events, on_gpu=True) == Profile(
        seconds=100, terms={"backward compute": Spent(30, 1), "all-gather": Spent(20, 1)}, hidden=15, nothing=65
    )


def test_a_kernel_without_a_telling_name_is_its_callers() -> None:
    """RCCL's kernel is generic; the one that no call launched is left to the rest."""
    events = [
        *PASSES, operator("c10d::_allgather_base_", 30, 32), launched(1, 31),
        kernel("ncclDevKernel_Generic_1(Storage)", 1, 40, 44), kernel("ncclDevKernel_Generic_1(Storage)", 2, 50, 51),
        kernel("CopyHostToDevice", 3, 60, 62, kind="gpu_memcpy"),
    ]  # fmt: skip
    assert profile(events, on_gpu=True).terms == {
        "all-gather": Spent(4, 1), "copies to the GPU": Spent(2, 1), "rest": Spent(1, 1),
    }  # fmt: skip


def test_copies_by_direction_and_an_update_on_the_host() -> None:
    events = [
        *PASSES, kernel("Memcpy HtoD (Pinned -> Device)", 1, 5, 7, kind="gpu_memcpy"),
        kernel("Memcpy DtoH (Device -> Pinned)", 2, 31, 34, kind="gpu_memcpy"),
        kernel("Memcpy DtoD (Device -> Device)", 3, 40, 41, kind="gpu_memcpy"),
        kernel("Memset (Device)", 4, 42, 43, kind="gpu_memset"),
        Event("Optimizer.step#DeepSpeedCPUAdam.step", "user_annotation", 82, 92, MAIN),
    ]  # fmt: skip
    assert profile(events, on_gpu=True).terms == {
        "backward compute": Spent(2, 2), "optimizer on the host": Spent(10, 1), "copies to the GPU": Spent(2, 1),
        "copies to the host": Spent(3, 1),
    }  # fmt: skip


def test_work_outside_of_the_step_does_not_count() -> None:
    events = [marked("step", 50, 100), operator("aten::mm", 40, 60), operator("aten::mm", 10, 20)]
    assert profile(events, on_gpu=False).terms == {"rest": Spent(10, 1)}


def test_the_last_marked_step_counts() -> None:
    events = [*PASSES, marked("step", 200, 210), operator("aten::mm", 20, 25), operator("aten::mm", 203, 205)]
    assert profile(events, on_gpu=False).seconds == 10


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("c10d::_allgather_base_", "all_gather"), ("c10d::reduce_scatter_tensor_coalesced_", "reduce_scatter"),
        ("c10d::alltoall_base_", "all_to_all"), ("ncclDevKernel_SendRecv", "all_to_all"),
        ("c10d::send", "send_receive"),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL", "reduce_scatter"), ("c10d::barrier", ""),
        ("ncclKernel_AllReduce_RING_LL_Sum_half", "all_reduce"),
    ],
)  # fmt: skip
def test_collectives_by_their_names(name: str, found: str) -> None:
    assert operation(name) == found


def test_a_trace_without_a_marked_step() -> None:
    with pytest.raises(InputError) as caught:
        profile([operator("aten::mm", 0, 1)], on_gpu=False)
    assert str(caught.value) == "the trace holds no marked step; expected an annotation 'planner: step'"


def test_a_gpu_that_the_profiler_does_not_see() -> None:
    with pytest.raises(InputError) as caught:
        profile([*PASSES, operator("aten::mm", 0, 1)], on_gpu=True)
    assert str(caught.value) == (
        "the profiler saw no kernel; profiling may need rights that this process does not have"
    )
