"""Starts a plan: a run folder with all that went into it, the real launcher, its signals and its exit code."""
