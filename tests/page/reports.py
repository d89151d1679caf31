"""Reports of small jobs, solved once: one that fits, one that does not."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from tempfile import mkdtemp

from planner.job import Job
from planner.page.data import Report, report
from planner.page.html import page_html
from planner.variants import Changes, Source

NASTY = "</script><script>alert(1)</script>&\"'"
# Four layers on two GPUs: everything fits.
SMALL = """
model: {parameters: 3e7, layers: 4, vocabulary: 8000}
cluster: {gpu: a100-sxm-80gb, gpus_per_node: 2}
training: {sequence_length: 512, global_batch: 8}
choices: {optimizer_offload: none, parameter_offload: none}
"""
# Seven billion parameters on a card of 16 GB without any offload: nothing fits.
LARGE = """
model: {parameters: 7e9, layers: 32}
cluster: {gpu: rtx4070ti-super-16gb, gpus_per_node: 1, host_memory: 256 GiB}
training: {sequence_length: 512, global_batch: 1}
choices: {zero_stage: 2, parameter_offload: none, optimizer_offload: none}
"""


class Named(Source):
    """A job whose model and machine have a name that would break a page."""

    def job(self) -> Job:
        return _named(super().job())

    def varied(self, changes: Changes, name: str = "") -> Job:
        return _named(super().varied(changes, name))


def _named(job: Job) -> Job:
    """The job under another name, and its model too."""
    return replace(job, name=NASTY, architecture=replace(job.architecture, name=NASTY), assumptions=(NASTY,))


def source(text: str, kind: type[Source] = Source) -> Source:
    """A job file with the text."""
    path = Path(mkdtemp()) / "small.yaml"
    path.write_text(text, encoding="utf-8")
    return kind(path)


@lru_cache(maxsize=4)
def fitting(nasty: bool = False) -> Report:
    """The report of the small job."""
    return report(source(SMALL, Named if nasty else Source))


@lru_cache(maxsize=4)
def failing(nasty: bool = False) -> Report:
    """The report of the large job."""
    return report(source(LARGE, Named if nasty else Source))


@lru_cache(maxsize=4)
def page(fits: bool = True, nasty: bool = False) -> str:
    """The page of one of them."""
    return page_html(fitting(nasty) if fits else failing(nasty))
