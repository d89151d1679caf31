"""Modules that Megatron makes again in backward: what layers keep no longer, what it costs, where it is planned."""

from __future__ import annotations

from typing import Any

import pytest

from planner.architecture.activation_sites import Site, layer_sites
from planner.architecture.amount import ActivationSettings, Amount
from planner.architecture.catalog_models import catalog_model, catalog_models
from planner.architecture.modules import discarded
from planner.architecture.shape import LayerKind
from planner.blocks import Blocks, blocks_of, ways
from planner.compute import clock
from planner.emit.megatron import arguments
from planner.errors import NoPlan
from planner.evaluate import evaluate
from planner.exchange import tensor_seconds
from planner.job import Job
from planner.layouts import layouts
from planner.ledger import ledger
from planner.plan import Layout
from planner.recomputed_modules import modules_seconds
from planner.search import solve
from planner.share import share
from planner.space import job_space
from planner.speed.modules import module_operations
from planner.speed.operations import Division, MemoryPass
from planner.step_time import time_terms
from tests.jobs import job, plan

# Width 512; 8 heads of 64 + 32 for queries and keys, 64 for values, out of 512 and a latent of 128; two dense layers
# of 2,048, three of 8 experts of 512, of which two and a shared one meet a token.
EXPERTS = "dense_then_experts/config.json"
DENSE = {"hidden": 256, "intermediate": 1024, "heads": 4, "layers": 4, "vocabulary": 8192, "parameters": 8_390_912}
ALL = "layernorm+moe_act+mla_up_proj+shared_experts+mlp"


def megatron(model: Any = EXPERTS, **overrides: Any) -> Job:
    """Two GPUs."""
    training = {"runtime": "megatron", "sequence_length": 512, "global_batch": 8, **overrides.pop("training", {})}
    return job(model=model, training=training, **overrides)


def kinds() -> tuple[LayerKind, LayerKind]:
    """The dense layer and that with experts."""
    found = megatron().layer_kinds
    return found[0], found[-1]


def sites(kind: LayerKind, *modules: str, **settings: Any) -> dict[str, Site]:
    """The last site of each name, under Megatron's kernels."""
    found = ActivationSettings(512, kernels="megatron", modules=modules, **settings)
    return {site.name: site for site in layer_sites(kind, 512, found)}


@pytest.mark.parametrize(
    ("layer", "module", "attention", "feed_forward"),
    [
        # The norm before latent attention is a module; that of the dense block is inside of its first product.
        (0, "layernorm", 2 * 512, 0),
        (1, "layernorm", 2 * 512, 2 * 512),
        # What the second product of two experts of 512 reads.
        (0, "moe_act", 0, 0),
        (1, "moe_act", 0, 2 * 2 * 512),
        # The normed latent; for 8 heads 96 of queries, 96 of keys, 64 + 64 out of it; but 32 rotated are kept.
        (0, "mla_up_proj", 2 * (128 + 8 * (96 + 96 + 64 + 64) - 32), 0),
        (1, "mla_up_proj", 2 * (128 + 8 * (96 + 96 + 64 + 64) - 32), 0),
        # Gate, up and product of 512; the block's input is kept.
        (0, "shared_experts", 0, 0),
        (1, "shared_experts", 0, 3 * 2 * 512),
        # Gate, up and product of 2,048, and the result of the norm inside.
        (0, "mlp", 0, 3 * 2 * 2048 + 2 * 512),
        (1, "mlp", 0, 0),
    ],
)
def test_what_is_kept_no_longer(layer: int, module: str, attention: int, feed_forward: int) -> None:
    """In bytes for each token; it stands while its site runs forward and backward, and not between."""
    kind = kinds()[layer]
    before, after = sites(kind), sites(kind, module)
    for name, size in (("attention", attention), ("feed_forward", feed_forward), ("norm", 0), ("end", 0)):
        old, new = before[name], after[name]
        assert new.stored == old.stored - Amount(0, size)
        assert (new.work.forward, new.work.backward) == (old.work.forward + size, old.work.backward + size)
        assert (new.work.alone, new.work.recomputed) == (old.work.alone, old.work.recomputed)


@pytest.mark.parametrize(("divided", "feed_forward"), [(True, 6_656), (False, 7_168)])
def test_a_part_of_it_on_each_tensor_parallel_rank(divided: bool, feed_forward: int) -> None:
    """3 × 2 × 2,048 over two ranks are 6,144; 2 × 512 of the norm's result as the stream, over two ranks or whole."""
    settings = {"tensor_parallel": 2, "sequence_parallel": divided}
    before, after = (sites(kinds()[0], *modules, **settings) for modules in ((), ("mlp",)))
    assert before["feed_forward"].stored - after["feed_forward"].stored == Amount(0, feed_forward)
    assert after["feed_forward"].stored == Amount(0, 0)


def test_several_modules_add_up() -> None:
    """2 × 512 + 2 × 2 × 512 + 3 × 2 × 512 = 6,144 bytes of the experts' site."""
    before, after = sites(kinds()[1]), sites(kinds()[1], "layernorm", "moe_act", "shared_experts")
    assert before["feed_forward"].stored - after["feed_forward"].stored == Amount(0, 6_144)


def test_operations_that_are_done_again() -> None:
    """Of the layer with experts, in elements for each token: norms 2 × 512; two experts' activations of 512 and the
    shared one's; rotation of 8 + 8 heads' 32 and copies of 8 + 16 heads of 96; products with the matrices named."""
    kind, one = kinds()[1], Division()
    found = module_operations(kind, 512, one, tuple(ALL.split("+")))
    assert sorted(product.name.split(".")[-2] for product in found.products) == [
        "down_proj", "gate_proj", "kv_b_proj", "q_proj", "up_proj",
    ]  # fmt: skip
    attention = kind.attention
    assert attention is not None
    copied = (attention.heads + 2 * attention.kv_heads) * attention.head_dim
    assert found.passes == (
        MemoryPass("norm_rms", 2 * 512, calls=2), MemoryPass("gated", 2 * 512),
        MemoryPass("rotary", 16 * 32, calls=2), MemoryPass("copy", copied), MemoryPass("gated", 512),
    )  # fmt: skip
    assert found.attentions == ()


def test_a_dense_block_is_done_again_with_its_norm() -> None:
    """Three products, a norm of 512, an activation of 2,048; half of each on two ranks that divide the stream."""
    found = module_operations(kinds()[0], 512, Division(2, sequence_parallel=True), ("mlp",))
    assert [(product.columns, product.inner) for product in found.products] == [(1024, 512), (1024, 512), (512, 1024)]
    assert found.passes == (MemoryPass("norm_rms", 256, calls=1), MemoryPass("gated", 1024))


def test_every_backward_pays_for_all_layers() -> None:
    """8 sequences on two ranks in micro-batches of one: three backwards beside others, and the last."""
    found = megatron()
    one = share(found, Layout(data=2))
    once = sum(n * modules_seconds(one, kind, 512, ("layernorm", "moe_act"), "typical") for kind, n in one.kind_counts)
    told = terms(found, recompute_modules="layernorm+moe_act")
    assert once > 0
    assert told == {"backward": pytest.approx(3 * once * 1e6, abs=1), "last_backward": pytest.approx(once * 1e6, abs=1)}
    assert set(terms(found).values()) == {0}
    assert terms(megatron(training={"runtime": "deepspeed"})) == {}


def terms(found: Job, **values: Any) -> dict[str, int]:
    """Microseconds of modules made again in each window on the first pipeline stage."""
    chosen = job_space(found).complete(plan(found, layout=Layout(data=2), micro_batch=1, **values))
    told = [t for t in time_terms(found, "typical") if t.name == "recomputed modules" and t.lane == "compute"]
    return {term.window: term.value(chosen) for term in told}


def test_what_is_exchanged_again() -> None:
    """A dense block sums up once more; up-projections gather the latent of 128 where the block gathers and scatters
    512 each: an eighth."""
    found = megatron(choices={"tensor_parallel": 2})
    one = share(found, layouts(found)[0])
    kind = one.kinds[0]
    own = {name: clock_seconds(one, kind, name) for name in ("mlp", "mla_up_proj", "layernorm")}
    block = tensor_seconds(one, kind, 512, "forward", "typical") / 2
    assert modules_seconds(one, kind, 512, ("mlp",), "typical") == pytest.approx(own["mlp"] + block)
    assert modules_seconds(one, kind, 512, ("mla_up_proj",), "typical") == pytest.approx(own["mla_up_proj"] + block / 8)
    assert modules_seconds(one, kind, 512, ("layernorm",), "typical") == pytest.approx(own["layernorm"])


def clock_seconds(one: Any, kind: LayerKind, module: str) -> float:
    """Seconds of a module's own operations."""
    return clock(one).modules(kind, 512, (module,), "typical")


@pytest.mark.parametrize(
    ("model", "training", "values"),
    [
        (DENSE, {}, ("none", "mlp")),
        (DENSE, {"runtime": "deepspeed"}, ("none",)),
        (DENSE, {"kernels": "huggingface"}, ("none",)),
        (DENSE, {"precision": "fp8"}, ("none", "mlp")),
        ("latent_attention/config.json", {}, ("none", "layernorm+mla_up_proj", "layernorm+mla_up_proj+mlp")),
        (EXPERTS, {}, ("none", "layernorm+moe_act", "layernorm+moe_act+mla_up_proj", ALL)),
        (EXPERTS, {"precision": "fp8"}, ("none",)),
        ("mixtral-8x7b", {}, ("none", "layernorm+moe_act")),
    ],
)
def test_which_modules_a_model_has(model: Any, training: dict[str, Any], values: tuple[str, ...]) -> None:
    """Delayed scaling makes no norm and no activation again; other runtimes make none."""
    found = megatron(model, training=training, cluster={"gpu": "h100-sxm-80gb"})
    assert job_space(found).by_name["recompute_modules"].values == values
    assert found.block_ways == ways([1], values)


def test_not_beside_checkpoints() -> None:
    """Megatron has one granularity."""
    pinned = {"recompute_modules": "mlp", "checkpoint_interval": 1, "checkpoint_count": 2}
    with pytest.raises(NoPlan) as caught:
        solve(megatron(DENSE, choices=pinned))
    assert caught.value.reasons == (
        "techniques_have_what_they_need: recompute_modules mlp needs checkpoint_interval 0, the plan has "
        "checkpoint_interval 1",
    )


def test_the_ledger_holds_less() -> None:
    """Four layers of 512 tokens without 3 × 2 × 1,024 + 2 × 256 bytes for each of them."""
    found = megatron(DENSE)
    before, after = (
        held(found, plan(found, micro_batch=1, recompute_modules=value)) for value in ("none", "mlp")
    )
    assert before - after == 4 * 512 * (3 * 2 * 1024 + 2 * 256)


def held(found: Job, chosen: Any) -> int:
    """Bytes of kept layers in forward."""
    lines = ledger(found, chosen)["gpu"].phases["forward"].lines
    return sum(line.bytes for line in lines if line.name == "activations of kept layers")


def test_planned_where_that_makes_room() -> None:
    """A card whose memory is just under what the fastest plan takes: modules cost less than layers made again."""
    free = megatron("deepseek-v2-lite", cluster={"gpu": "h100-sxm-80gb", "gpus_per_node": 8},
                    training={"sequence_length": 4096, "global_batch": 64})  # fmt: skip
    best = solve(free).best
    assert best.plan["recompute_modules"] != "none"
    without = solve(free.with_choices({"recompute_modules": ("none",)})).best
    assert best.step_time.microseconds < without.step_time.microseconds
    again = evaluate(free, best.plan)
    assert again.peak_bytes == best.peak_bytes


def test_arguments_of_megatron() -> None:
    found = megatron()
    told = arguments(found, plan(found, recompute_modules="layernorm+moe_act"))
    assert ["--recompute-granularity", "selective"] in told
    assert ["--recompute-modules", "layernorm", "moe_act"] in told
    assert ["--moe-grouped-gemm"] in told
    assert not any(words[0].startswith("--recompute") for words in arguments(found, plan(found)))


def test_blocks_by_values() -> None:
    assert blocks_of({"mlp_tiles": 4, "recompute_modules": "none"}) == Blocks(4)
    assert blocks_of({"mlp_tiles": 1, "recompute_modules": "layernorm+mlp"}) == Blocks(1, ("layernorm", "mlp"))
    assert ways([1, 4], ["none", "mlp"]) == (Blocks(1), Blocks(4), Blocks(1, ("mlp",)))


@pytest.mark.parametrize(
    ("model", "size"),
    [
        # One norm for attention and block: its result stays for attention; gate, up and product of 22,528.
        ("command-r-35b", 3 * 2 * 22_528),
        # The block reads the stream itself, which stays: gate, up and product of 11,008.
        ("olmo-2-7b", 3 * 2 * 11_008),
        # Norms before and after: the one before is made again with the block.
        ("gemma-2-9b", 3 * 2 * 14_336 + 2 * 3_584),
    ],
)
def test_a_block_without_a_norm_of_its_own_keeps_its_input(model: str, size: int) -> None:
    architecture = catalog_model(model)
    kind = architecture.layers[0].kind
    settings = ActivationSettings(512, kernels="megatron", modules=("mlp",))
    assert discarded("feed_forward", kind, architecture.hidden, settings) == size


@pytest.mark.parametrize("model", sorted(catalog_models()))
def test_nothing_is_left_out_that_is_not_there(model: str) -> None:
    """Every site of every model keeps something or nothing, however it is divided."""
    architecture = catalog_model(model)
    for parts, divided, narrow in ((1, True, False), (2, False, False), (4, True, True)):
        settings = ActivationSettings(
            512, kernels="megatron", modules=tuple(ALL.split("+")), tensor_parallel=parts, sequence_parallel=divided,
            narrow_inputs=narrow,
        )  # fmt: skip
        for group in architecture.layers:
            sites_of = layer_sites(group.kind, architecture.hidden, settings)
            assert min(site.stored.per_token for site in sites_of) >= 0
