"""Catalog files held against each other and against what parts of their kind can be: slips, contradictions, names."""
