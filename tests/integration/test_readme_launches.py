"""README's way from nothing to a launched job: its five commands as they stand there, beside nothing but the sources.

The packages that the extra asks for are heavy: those of the running Python are made visible to the new environment, so
that pip builds and installs the project, resolves the extra, and finds the rest already there.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("deepspeed")
pytest.importorskip("ortools")

ROOT = Path(__file__).parents[2]
SECTION = re.compile(r"^## From nothing to a launched job\n+```sh\n(.*?)```$", re.MULTILINE | re.DOTALL)
SOURCES = ("README.md", "LICENSE", "MANIFEST.in", "setup.cfg", "pyproject.toml",
           "planner", "constraints", "catalogs", "examples")  # fmt: skip
# A python3 whose new environments see what this one has.
PYTHON = """#!/bin/sh
{python} "$@" || exit
if [ "$2" = venv ]; then printf '%s\\n' {packages} > "$(echo "$3"/lib/python*/site-packages)/there.pth"; fi
"""


def commands() -> list[str]:
    """The lines of the section's first block."""
    found = SECTION.search((ROOT / "README.md").read_text(encoding="utf-8"))
    assert found is not None
    return found[1].splitlines()


def checkout(folder: Path) -> Path:
    """A folder with what is needed to install and run the project, as if just unpacked."""
    folder.mkdir()
    for name in SOURCES:
        source, copy = ROOT / name, folder / name
        if source.is_dir():
            shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__", "runs"))
        else:
            shutil.copy(source, copy)
    return folder


def environment(folder: Path) -> dict[str, str]:
    """PATH with that python3 first, and nothing that makes the checkout's own package visible."""
    packages = " ".join(f"'{path}'" for path in sys.path if path.endswith(("site-packages", "dist-packages")))
    (folder / "python3").write_text(PYTHON.format(python=f"'{sys.executable}'", packages=packages))
    (folder / "python3").chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return {**kept, "PATH": f"{folder}:{os.environ['PATH']}", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def index_is_there(folder: Path) -> bool:
    """Whether pip finds the package that every build of the project needs."""
    words = ["-m", "pip", "download", "--quiet", "--no-deps", "--retries=1", "setuptools", "--dest", str(folder)]
    return subprocess.run([sys.executable, *words], capture_output=True, check=False).returncode == 0


def states(folder: Path) -> dict[str, str]:
    """How each run of the folder ended."""
    return {
        path.parent.name.rpartition("-")[0].rpartition("-")[0]: json.loads(path.read_text())["state"]
        for path in (folder / "runs").glob("*/status.json")
    }


def test_five_commands_from_nothing_to_a_launched_job(tmp_path: Path) -> None:
    if not index_is_there(tmp_path / "index"):
        pytest.skip("pip reaches no package index here, and the project cannot be built without setuptools")
    lines = commands()
    assert [re.findall(r"pip install|planner \w+", line) for line in lines] == [
        ["pip install"], ["planner solve"], ["planner emit"], ["planner verify"], ["planner launch"],
    ]  # fmt: skip
    folder, tools = checkout(tmp_path / "planner"), tmp_path / "bin"
    tools.mkdir()
    words, variables = ["bash", "-exc", "\n".join(lines)], environment(tools)
    found = subprocess.run(words, cwd=folder, env=variables, text=True, capture_output=True, check=False)
    assert found.returncode == 0, found.stdout[-2000:] + found.stderr[-3000:]
    assert "Successfully installed planner-" in found.stdout
    for said in ("One GPU: fits", '"train_micro_batch_size_per_gpu"', "every book agrees within 3%", "step 5 loss"):
        assert said in found.stdout
    assert states(folder) == {"verify-tiny": "finished", "tiny": "finished"}
    assert (folder / ".venv" / "bin" / "planner").exists()
