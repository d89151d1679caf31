"""Measured activations of real model code, and the configurations they were measured on."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from planner.architecture.activations import ActivationSettings

DATA = Path(__file__).parents[1] / "data"
LAYER_KEYS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
PUBLISHED: dict[str, dict[str, Any]] = {
    "blind/starcoder2-7b": {
        "model_type": "starcoder2", "hidden_size": 4608, "intermediate_size": 18432, "num_attention_heads": 36,
        "num_key_value_heads": 4, "vocab_size": 49152,
    },
    "blind/stablelm-3b": {"model_type": "stablelm"},
    "blind/granite-8b": {
        "model_type": "granite", "hidden_size": 4096, "intermediate_size": 12800, "num_attention_heads": 32,
        "num_key_value_heads": 8, "vocab_size": 49155,
    },
    "blind/smollm3-3b": {
        "model_type": "smollm3", "hidden_size": 2048, "intermediate_size": 11008, "num_attention_heads": 16,
        "num_key_value_heads": 4, "vocab_size": 128256,
    },
    "blind/olmo2-7b": {"model_type": "olmo2", "vocab_size": 100352},
    "blind/olmo-7b": {"model_type": "olmo", "vocab_size": 50304},
    "blind/ernie4.5-0.3b": {"model_type": "ernie4_5"},
    "blind/helium-2b": {"model_type": "helium"},
    "blind/seed-oss": {
        "model_type": "seed_oss", "hidden_size": 5120, "intermediate_size": 27648, "num_attention_heads": 80,
        "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 155136,
    },
    "blind/qwen3-32b": {
        "model_type": "qwen3", "hidden_size": 5120, "intermediate_size": 25600, "num_attention_heads": 64,
        "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936,
    },
}


@dataclass(frozen=True)
class Run:
    """One measured micro-batch; `peaks` are (activation bytes, those with gradients) by moment, absent if unknown."""

    model: str
    layers: int
    tokens: int
    sequence: int
    checkpointed: bool
    implementation: str
    parameters: int
    peaks: dict[str, tuple[int, int]]

    @property
    def name(self) -> str:
        """Readable identity."""
        kept = "checkpointed" if self.checkpointed else "kept"
        return f"{self.model}-{self.layers}x{self.tokens}-{kept}-{self.implementation}"

    def config(self) -> dict[str, Any]:
        """Configuration with the measured number of layers; of DeepSeek's the first is dense."""
        config = dict(configurations()[self.model])
        if "dec_seq" in self.implementation:  # an encoder-decoder: `layers` of one tower, two of the other
            encoder, decoder = (self.layers, 2) if " enc " in self.implementation else (2, self.layers)
            return {**config, "num_layers": encoder, "num_decoder_layers": decoder}
        key = next((key for key in LAYER_KEYS if key in config), "num_hidden_layers")
        dense = {"first_k_dense_replace": 1} if "first_k_dense_replace" in config else {}
        return {**config, key: self.layers, **dense}

    def settings(self) -> ActivationSettings:
        """What the run did, as settings. Measured on fake CPU tensors, where dropout masks take two bytes."""
        return ActivationSettings(
            sequence_length=self.sequence,
            precision="autocast" if "autocast" in self.implementation else "bf16",
            attention=self._attention(),
            method="lora" if "LoRA" in self.implementation else "full",
            lora_targets=("q", "v") if "q,v" in self.implementation else ("q", "k", "v", "o", "gate", "up", "down"),
            adapter_bytes=4 if "fp32" in self.implementation else 2,
            dropout=self.implementation.endswith("dropout") or self.model == "blind/seed-oss",
            dropout_mask_bytes=2,
        )

    def _attention(self) -> str:
        if "padding mask" in self.implementation:
            return "sdpa_masked"
        return "eager" if "eager" in self.implementation else "flash"


def configurations() -> dict[str, dict[str, Any]]:
    """Configurations by model."""
    models = yaml.safe_load((DATA / "models.yaml").read_text(encoding="utf-8"))
    return {**{entry["id"]: entry["config_as_json_fields"] for entry in models}, **PUBLISHED}


def stored_sets() -> list[dict[str, Any]]:
    """Entries of activations.yaml."""
    found: list[dict[str, Any]] = yaml.safe_load((DATA / "activations.yaml").read_text(encoding="utf-8"))
    return found


def runs() -> list[Run]:
    """Rows of peaks.csv."""
    with (DATA / "peaks.csv").open(encoding="utf-8") as file:
        return [_run(row) for row in csv.DictReader(file)]


def _run(row: dict[str, str]) -> Run:
    moments = {"fwd_layers": "forward_layers", "loss": "forward_loss", "bwd_head": "backward_loss",
               "bwd_layers": "backward_layers"}
    return Run(
        model=row["model"], layers=int(row["layers"]), tokens=int(row["batch"]) * int(row["seq"]),
        sequence=int(row["seq"]), checkpointed=row["checkpointing"] == "True", implementation=row["implementation"],
        parameters=int(row["params"]),
        peaks={
            moment: (int(row[f"{column}_activation_bytes"]), int(row[f"{column}_total_peak"]))
            for column, moment in moments.items() if row[f"{column}_activation_bytes"] not in ("", "0")
        },
    )
