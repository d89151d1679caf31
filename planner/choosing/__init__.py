"""Chooses the cluster too: a job that lists clusters, or leaves the GPU open, and the best plan over all of them."""
