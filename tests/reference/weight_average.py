"""Computes averages of weights in float64: PyTorch's exponential moving average, and Lookahead."""

import torch
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

FIRST = [1, -2, 3]
STEPS = [[0.5, -1, 0.25], [-0.75, 2, 0.125], [1.5, 0.5, -3]]
GRADIENTS = [[0.5, -1, 0.25], [-0.75, 2, 0.125], [1.5, 0.5, -3], [0.25, 0.5, 1]]
RATE, EVERY, ALPHA = 0.1, 2, 0.5


def tensor(values) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


class Weights(torch.nn.Module):
    """A parameter, and a buffer of twice its values."""

    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(tensor(FIRST))
        self.register_buffer("running_var", 2 * tensor(FIRST))

    @torch.no_grad()
    def set(self, values):
        self.scale.copy_(tensor(values))
        self.running_var.copy_(2 * tensor(values))


def ema() -> dict:
    model = Weights()
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True)
    average.update_parameters(model)  # the first call copies the values
    for values in STEPS:
        model.set(values)
        average.update_parameters(model)
    return {"ema/scale": average.module.scale, "ema/running_var": average.module.running_var}


def lookahead() -> dict:
    """Algorithm 1 of Zhang et al., arXiv:1907.08610, with SGD."""
    slow, fast = tensor(FIRST), tensor(FIRST)
    for step, gradient in enumerate(GRADIENTS, 1):
        fast = fast - RATE * tensor(gradient)
        if step % EVERY == 0:
            slow = fast = torch.lerp(slow, fast, ALPHA)
    return {"lookahead": slow}


def compute() -> dict:
    return {**ema(), **lookahead()}
