"""A picture with two short series, made by hand."""

from __future__ import annotations

from planner.plot.picture import Picture, Series, Spot

LEAN = (Spot(10, 8, ("lean, point 1", "zero_stage 3")), Spot(30, 4, ("lean, point 2", "zero_stage 1 & <none>")))
FAST = (Spot(20, 3, ("fast, point 1", "zero_stage 2")),)
SERIES = (Series("lean", LEAN, 40), Series("fast", FAST))
PICTURE = Picture("two & more", "GPU memory (GiB)", "step time (seconds)", SERIES)
