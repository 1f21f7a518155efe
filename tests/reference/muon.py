"""Computes steps of Muon in float64: with torch.optim.Muon, and with the settings of the CIFAR-10 speed recipe."""

import contextlib
import math

import torch

from ops import tensor

# Shapes of matrices: two wide ones of equal shape, a tall one, a square one.
SHAPES = {"a": (4, 7), "b": (4, 7), "c": (9, 4), "d": (5, 5)}
# case: settings of torch.optim.Muon
MUON = {
    "muon": {"weight_decay": 0.1},
    "muon/plain": {"weight_decay": 0.0, "momentum": 0.9, "nesterov": False, "ns_steps": 3},
    "muon/adam_rms": {"weight_decay": 0.1, "adjust_lr_fn": "match_rms_adamw"},
}
STEPS = 5
RATE = 0.02
RECIPE_RATE = 0.24
SGD_RATE = 0.05


@contextlib.contextmanager
def in_float64():
    """Makes torch.optim.Muon orthogonalize in float64, in place of bfloat16.

    PyTorch 2.15 rounds with Tensor.to(torch.bfloat16, copy=True), and 2.11 with Tensor.bfloat16().
    """
    originals = torch.bfloat16, torch.Tensor.bfloat16
    torch.bfloat16, torch.Tensor.bfloat16 = torch.float64, torch.Tensor.clone
    try:
        yield
    finally:
        torch.bfloat16, torch.Tensor.bfloat16 = originals


def orthogonalized(matrix: torch.Tensor, steps: int) -> torch.Tensor:
    """Returns the result of Newton-Schulz iterations."""
    x = matrix / matrix.norm()
    for _ in range(steps):
        gram = x @ x.T
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return x


class Recipe:
    """Muon as in the speed recipe: filters [O, I, kH, kW] are rescaled to the norm sqrt(O), and do not decay."""

    def __init__(self, filters, lr: float, momentum: float, steps: int):
        self.filters, self.lr, self.momentum, self.steps = filters, lr, momentum, steps
        self.buffers = [torch.zeros_like(filter) for filter in filters]

    @torch.no_grad()
    def step(self) -> None:
        for filter, buffer in zip(self.filters, self.buffers):
            buffer.mul_(self.momentum).add_(filter.grad)
            update = filter.grad + self.momentum * buffer
            filter.mul_(math.sqrt(len(filter)) / filter.norm())
            filter.sub_(self.lr * orthogonalized(update.flatten(1), self.steps).view_as(filter))


def run(out: dict, case: str, parameters: dict, optimizers) -> None:
    """Stores the parameters after each step. `optimizers` steps them, given the number of the step."""
    trajectories = {name: [] for name in parameters}
    for step in range(STEPS):
        for name, parameter in parameters.items():
            parameter.grad = tensor(f"{case}/{name}/grad{step}", *parameter.shape, grad=False)
        optimizers(step)
        for name, parameter in parameters.items():
            trajectories[name].append(parameter.detach().clone())
    for name, values in trajectories.items():
        out |= {f"{case}/{name}/step{step}": value for step, value in enumerate(values)}


def compute() -> dict:
    out = {}
    with in_float64():
        for case, settings in MUON.items():
            parameters = {name: tensor(f"{case}/{name}", *shape) for name, shape in SHAPES.items()}
            optimizer = torch.optim.Muon(parameters.values(), lr=RATE, **settings)

            def step_muon(step: int) -> None:
                optimizer.param_groups[0]["lr"] = RATE * (1 - step / 10)
                optimizer.step()

            run(out, case, parameters, step_muon)

    parameters = {"filter": tensor("muon/recipe/filter", 4, 3, 3, 2),
                  "other": tensor("muon/recipe/other", 4, 3, 3, 2),
                  "bias": tensor("muon/recipe/bias", 5)}
    muon = Recipe([parameters["filter"], parameters["other"]], RECIPE_RATE, momentum=0.6, steps=3)
    sgd = torch.optim.SGD([parameters["bias"]], lr=SGD_RATE, momentum=0.85, nesterov=True, weight_decay=0.1)

    def step_recipe(step: int) -> None:
        muon.lr = RECIPE_RATE * (1 - step / 10)
        sgd.param_groups[0]["lr"] = SGD_RATE * (1 - step / 10)
        muon.step()
        sgd.step()

    run(out, "muon/recipe", parameters, step_recipe)
    return out
