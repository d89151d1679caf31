"""An existing DeepSpeed file held against what DeepSpeed does with it, and against a job."""
