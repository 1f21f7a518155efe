"""In place of torch.utils."""
