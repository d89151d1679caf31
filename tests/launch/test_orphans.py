"""Processes that a killed launcher leaves behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from planner.launch.orphans import end_orphans


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="no /proc")
def test_only_marked_processes_are_ended(tmp_path: Path) -> None:
    sleep = [sys.executable, "-c", "import time; time.sleep(60)"]
    plans = (tmp_path / "a" / "plan.json", tmp_path / "b" / "plan.json")
    mine, other = (subprocess.Popen(sleep, env={**os.environ, "PLANNER_PLAN": str(plan)}) for plan in plans)
    try:
        assert end_orphans(f"PLANNER_PLAN={plans[0]}") == (mine.pid,)
        assert mine.wait(10) == -9
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()
