"""Fits the planner to one machine from measured runs of it, and writes what it finds as a catalog overlay."""
