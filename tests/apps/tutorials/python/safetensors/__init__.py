"""In place of safetensors."""
