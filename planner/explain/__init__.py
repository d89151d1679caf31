"""Why this plan, why not another, why nothing fits and what would: every sentence stands on a solve of its own."""
