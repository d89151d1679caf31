"""How long one GPU takes for the operations of a model: products, attention, memory-bound passes and their sums."""
