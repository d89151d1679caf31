"""How far the planner's figures are from training runs that somebody measured."""

from __future__ import annotations

from planner.accuracy.page import accuracy_page
from planner.accuracy.score import Accuracy, accuracy, accuracy_answer
from planner.accuracy.text import accuracy_text

__all__ = ["Accuracy", "accuracy", "accuracy_answer", "accuracy_page", "accuracy_text"]
