"""Pictures of frontiers: as text, SVG, PNG, and as a page whose points speak."""
