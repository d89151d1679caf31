"""Files that launch what was planned, one module per target."""
