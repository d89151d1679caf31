"""Small jobs in which every two values of choices, runtimes, layouts, objectives and limits meet at least once.

A *trait* is a factor with a value, such as ("loss", "chunked") or ("deadline", "at"): a value of a choice counts for
every job whose candidates include it. Jobs are drawn one after another, each of several the one with the most pairs of
traits that no job before had.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations
from math import ceil
from random import Random
from typing import Any

import constraints
from planner.job import Job, Limits
from planner.layouts import layouts
from planner.ledger import ledger
from planner.plan import Layout, Plan
from planner.space import job_space
from planner.techniques import read_runtime, read_techniques
from planner.terms import Rule
from planner.time_lines import step_time
from tests.jobs import NVME, job, random_plan

Trait = tuple[str, Any]
DRAWN = 20  # candidates of which one is taken
OPEN = 5  # choices with two candidate values
LARGEST = 500  # plans of a job
TRIED = 60  # random plans among which one is looked for that breaks no rule

TECHNIQUES = read_techniques().choices
CHOICES: Mapping[str, tuple[Any, ...]] = {
    **{name: tuple(entry.values) for name, entry in TECHNIQUES.items() if entry.domain == "listed"},
    "gradient_accumulation_dtype": ("bf16", "fp32"),
    "micro_batch": (1, 2),
    "checkpoint_interval": (0, 1, 2),
    "checkpoint_count": (0, 1, 2),
}
PAIRS = {"fast, then lean": ("step_time", "memory", "0"), "near fastest": ("step_time", "memory", "3 %"),
         "near leanest": ("memory", "step_time", "10 %")}  # fmt: skip
SETTINGS: Mapping[str, tuple[str, ...]] = {
    "runtime": ("deepspeed", "fsdp2", "megatron"),
    "degree": ("data", "tensor", "pipeline", "sequence", "expert"),
    "objective": ("step_time", "tokens_per_second", "memory", "cost_per_token", *PAIRS),
    "deadline": ("none", "at", "under", "loose"),
    "headroom": ("none", "at", "under"),
    "host limit": ("none", "at", "under"),
    "gpu memory": ("loose", "at", "under"),
}
# Drawn more often, so that most jobs have a plan.
RELAXED: Mapping[str, tuple[str, ...]] = {
    "deadline": ("none", "none", "loose", "loose", "at"),
    "headroom": ("none", "none", "at"),
    "host limit": ("none", "none", "at"),
    "gpu memory": ("loose", "loose", "at"),
}
FACTORS: Mapping[str, tuple[Any, ...]] = {**CHOICES, **SETTINGS}


@dataclass(frozen=True, eq=False)
class Draft:
    """What a job is made of: candidate values of every choice, and one value of every setting."""

    seed: int
    choices: Mapping[str, tuple[Any, ...]]
    settings: Mapping[str, str]

    @property
    def traits(self) -> frozenset[Trait]:
        """The job's traits."""
        values = ((name, value) for name, found in self.choices.items() for value in found)
        return frozenset((*values, *self.settings.items()))

    @property
    def pairs(self) -> frozenset[tuple[Trait, Trait]]:
        """Every two traits of different factors that meet in the job."""
        return pairs_of(self.traits)


def pairs_of(traits: Iterable[Trait]) -> frozenset[tuple[Trait, Trait]]:
    """All pairs of traits of different factors, each in one order."""
    ordered = sorted(traits, key=repr)
    return frozenset(pair for pair in combinations(ordered, 2) if pair[0][0] != pair[1][0])


@lru_cache
def wanted_pairs() -> frozenset[tuple[Trait, Trait]]:
    """Every pair that some job must have."""
    return pairs_of((name, value) for name, values in FACTORS.items() for value in values)


@lru_cache(maxsize=4)
def drafts(count: int) -> tuple[Draft, ...]:
    """That many drafts; the same for the same count."""
    missing, found = set(wanted_pairs()), []
    for seed in range(count):
        draw = Random(f"aimed {seed}")
        candidates = [_draft(seed, draw) for _ in range(DRAWN if missing else 1)]
        best = max(candidates, key=lambda draft: len(draft.pairs & missing))
        missing -= best.pairs
        found.append(best)
    return tuple(found)


def _draft(seed: int, draw: Random) -> Draft:
    """Plain values of a runtime with a few other values beside or in place of them."""
    settings = {name: draw.choice((*values, *RELAXED.get(name, ()))) for name, values in SETTINGS.items()}
    runtime = read_runtime(settings["runtime"])
    choices = {name: (_plain(name, runtime.choices.get(name)),) for name in CHOICES}
    for name in draw.sample(list(CHOICES), OPEN):
        choices[name] = tuple(dict.fromkeys((*choices[name], draw.choice(CHOICES[name]))))
    pinned = draw.choice([name for name, values in choices.items() if len(values) == 1])
    if draw.random() < 0.4:
        choices[pinned] = (draw.choice(CHOICES[pinned]),)
    for name in ("checkpoint_interval", "checkpoint_count"):
        if len(choices["checkpoint_interval"] + choices["checkpoint_count"]) > 2 or draw.random() < 0.3:
            choices[name] = tuple(dict.fromkeys((0, *choices[name], draw.choice((1, 2)))))
    return Draft(seed, choices, settings)


def _plain(name: str, known: tuple[Any, ...] | None) -> Any:
    """The value that the runtime has by itself, else the catalog's default."""
    if known:
        return known[0]
    return TECHNIQUES[name].default if TECHNIQUES[name].domain == "listed" else CHOICES[name][0]


def aimed_job(draft: Draft) -> Job:
    """The job of a draft: two layers, two or four GPUs, limits at, under or above what one of its plans takes."""
    draw, settings = Random(f"job {draft.seed}"), draft.settings
    gpus = draw.choice((2, 4))
    objective: Any = settings["objective"]
    if objective in PAIRS:
        first, then, within = PAIRS[objective]
        objective = {"first": first, "within": within, "then": then}
    size = {"parameters": draw.randint(60, 400) * 1_000_000, "layers": draw.choice((2, 3, 4)), "vocabulary": 8000,
            "hidden": 512, "heads": 8}  # fmt: skip
    asked = _facts_asked(draft)
    nodes = 2 if "nodes" in asked else 1
    length = 16384 if "sequence_length" in asked else draw.choice((256, 1024))
    found = job(
        model=_model(draft, asked) or size,
        cluster={"gpu": "a100-sxm-80gb", "gpus_per_node": gpus // nodes, "nodes": nodes, "interconnect": "100 Gbit/s",
                 "nvme": NVME, "gpu_price": "2 USD/hour"},
        training={
            "sequence_length": length,
            "global_batch": gpus * draw.choice((1, 2, 2, 4)),
            "optimizer": draw.choice(("adamw", "adamw", "adamw", "lion", "sgd")),
            "runtime": settings["runtime"],
            **({"gradient_clipping": 0} if "clipping" in asked else {}),
        },
        objective=objective,
    )
    found = found.with_choices({**draft.choices, "layout": _layouts(found, settings["degree"], draw)})
    return _limited(found, settings, draw)


def _facts_asked(draft: Draft) -> set[str]:
    """The facts of a job that techniques of the draft are only there with."""
    named = (TECHNIQUES[name].values.get(value) for name, values in draft.choices.items() for value in values)
    return {fact for technique in named if technique is not None for fact in technique.where}


def _model(draft: Draft, asked: set[str]) -> str:
    """A model with the blocks that techniques of the draft are there with; empty for any."""
    modules = "+".join(map(str, draft.choices["recompute_modules"]))
    if draft.settings["degree"] == "expert" or "moe_act" in modules:
        return "dense_then_experts/config.json"
    return "latent_attention/config.json" if "latent_attention" in asked and "mla_up_proj" in modules else ""


def _layouts(found: Job, degree: str, draw: Random) -> tuple[Layout, ...]:
    """One or two layouts, at least one of them with more than one rank of the degree."""
    if degree == "data":
        return (Layout(data=found.cluster.gpus),)
    possible = layouts(found.with_choices({f"{degree}_parallel": (1, 2)}))
    divided = [layout for layout in possible if getattr(layout, degree) > 1]
    whole = [layout for layout in possible if getattr(layout, degree) == 1]
    return tuple(dict.fromkeys([draw.choice(divided), *whole[: draw.randint(0, 1)]]))


def _reference(found: Job, draw: Random) -> Plan:
    """A plan that breaks no rule, if one is found soon; else any."""
    rules = [item for module in constraints.ALL for item in module.require(found) if isinstance(item, Rule)]
    plan = random_plan(found, draw)
    for _ in range(TRIED):
        if all(rule.satisfied(plan) for rule in rules):
            break
        plan = random_plan(found, draw)
    return plan


def _limited(found: Job, settings: Mapping[str, str], draw: Random) -> Job:
    """The job with limits at what a plan takes, a little under it, or above."""
    if {settings[name] for name in ("deadline", "headroom", "host limit", "gpu memory")} <= {"none", "loose"}:
        return found
    plan = _reference(found, draw)
    books, time = ledger(found, plan), step_time(found, job_space(found).complete(plan)).microseconds
    peak, host = books["gpu"].peak.total, books["host"].peak.total
    usable = found.cluster.gpu.usable_memory
    needed = ceil(peak * found.runtime.fragmentation) + 1
    if settings["gpu memory"] != "loose":
        usable = needed - (4 if settings["gpu memory"] == "under" else 0)
        usable += 0 if settings["headroom"] == "none" else 1 << 26
        found = replace(found, cluster=replace(found.cluster, gpu=replace(found.cluster.gpu, usable_memory=usable)))
    free = {"none": 0, "at": max(1, usable - needed), "under": max(1, usable - needed + draw.choice((4, 1 << 20)))}
    late = {"none": None, "at": time, "under": time - 1, "loose": time + time // 3}
    kept = {"none": None, "at": host, "under": host - 1}
    limits = Limits(late[settings["deadline"]], free[settings["headroom"]], kept[settings["host limit"]])
    return replace(found, limits=limits)
