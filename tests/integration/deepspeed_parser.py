"""DeepSpeed's own configuration parser, without a GPU and without a process group."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from typing import Any
from unittest import mock

os.environ.setdefault("DS_ACCELERATOR", "cpu")


def parse(configuration: Mapping[str, Any], world: int) -> Any:
    """The `DeepSpeedConfig` that rank 0 of `world` processes would build; raises what DeepSpeed raises.

    Both functions are replaced because without a process group `get_rank` fails and the parser falls back,
    without a word, to a world of one process: it would check the wrong batch equation
    (DeepSpeed 0.19.8, deepspeed/runtime/config.py). The dictionary is copied: the parser changes what it reads.
    """
    from deepspeed.runtime.config import DeepSpeedConfig

    logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
    with (
        mock.patch("deepspeed.comm.get_rank", return_value=0),
        mock.patch("deepspeed.comm.get_world_size", return_value=world),
    ):
        return DeepSpeedConfig(json.loads(json.dumps(configuration)))
