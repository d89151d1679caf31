"""A constraint-solving configuration planner for training large models."""

__version__ = "0.1.0"
