"""convoy-learn: exercises in CUDA that a machine checks, without a GPU."""
