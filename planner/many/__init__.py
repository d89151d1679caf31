"""Many jobs at once: files, folders, one job with lists of values; on local processes or an engine; resumable."""
