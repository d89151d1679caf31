"""Runs a few real steps of a plan and holds what they took against what was predicted."""
