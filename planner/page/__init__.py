"""One self-contained page about a job: plan, frontier, alternatives, what would be if, and the file to run."""
