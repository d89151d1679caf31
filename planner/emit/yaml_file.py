"""YAML text of emitted files."""

from __future__ import annotations

from typing import Any


def yaml_text(data: Any) -> str:
    """`data` as YAML, keys in their order, no aliases, several lines as a block."""
    import yaml

    class Dumper(yaml.SafeDumper):
        """Writes equal objects out each time."""

        def ignore_aliases(self, data: Any) -> bool:
            return True

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.Node:
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)

    Dumper.add_representer(str, text)
    return str(yaml.dump(data, Dumper=Dumper, sort_keys=False, width=120))
