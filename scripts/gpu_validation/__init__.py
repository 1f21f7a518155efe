"""The stages of scripts/validate_gpu.py, one per module."""
