"""Computes the rates of PyTorch's learning-rate schedulers."""

import torch
from torch.optim import lr_scheduler as schedulers

PEAK, STEPS, STEPS_PER_EPOCH, WARMUP = 0.4, 60, 10, 6
RISE = 18  # steps of the warmup of `linear/warmup`


def rates(make, every: int = 1) -> torch.Tensor:
    """Returns the rate of each step of a scheduler that is stepped after every so many steps."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=PEAK)
    scheduler = make(optimizer)
    values = []
    for step in range(STEPS):
        values.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if (step + 1) % every == 0:
            scheduler.step()
    return torch.tensor(values, dtype=torch.float64)


def warmup_and_cosine(optimizer):
    rise = schedulers.LinearLR(optimizer, 1 / (WARMUP + 1), 1, WARMUP)
    fall = schedulers.CosineAnnealingLR(optimizer, STEPS - WARMUP, eta_min=0.01)
    return schedulers.SequentialLR(optimizer, [rise, fall], [WARMUP])


def warmup_and_line(optimizer):
    rise = schedulers.LinearLR(optimizer, 1 / (RISE + 1), 1, RISE)
    fall = schedulers.LinearLR(optimizer, 1, 0.1, STEPS - RISE)
    return schedulers.SequentialLR(optimizer, [rise, fall], [RISE])


def plateau(losses: torch.Tensor) -> torch.Tensor:
    """Returns the rate after each loss."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=PEAK)
    scheduler = schedulers.ReduceLROnPlateau(optimizer, factor=0.3, patience=2, threshold=0.01, min_lr=0.005)
    values = []
    for loss in losses.tolist():
        scheduler.step(loss)
        values.append(optimizer.param_groups[0]["lr"])
    return torch.tensor(values, dtype=torch.float64)


def compute() -> dict:
    generator = torch.Generator().manual_seed(1)
    falling = 0.5 + 2 * torch.exp(-torch.arange(STEPS, dtype=torch.float64) / 8)
    losses = falling + 0.1 * torch.rand(STEPS, generator=generator, dtype=torch.float64)
    losses[20] = float("nan")
    return {
        "plateau_losses": losses,
        "plateau": plateau(losses),
        "cosine": rates(warmup_and_cosine),
        "cosine/cycles": rates(lambda o: schedulers.CosineAnnealingWarmRestarts(o, 15, eta_min=0.01)),
        "cosine/growth": rates(lambda o: schedulers.CosineAnnealingWarmRestarts(o, 20, T_mult=2, eta_min=0.01)),
        "linear": rates(lambda o: schedulers.LinearLR(o, 1, 0.1, STEPS)),
        "linear/warmup": rates(warmup_and_line),
        "step": rates(lambda o: schedulers.MultiStepLR(o, [15, 45], gamma=0.3)),
        "exponential": rates(lambda o: schedulers.ExponentialLR(o, gamma=0.8), every=STEPS_PER_EPOCH),
        "polynomial": rates(lambda o: schedulers.PolynomialLR(o, STEPS, power=0.9)),
        "one-cycle": rates(lambda o: schedulers.OneCycleLR(o, PEAK, total_steps=STEPS, cycle_momentum=False)),
    }
