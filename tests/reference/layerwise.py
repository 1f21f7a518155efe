"""Computes steps of LARS and LAMB in float64, written from the algorithms of the papers."""

import torch

from muon import run
from ops import tensor

# The parameters and whether they have a trust ratio: a filter, a weight, one that is zero at first, a bias.
SHAPES = {"filter": (4, 3, 3, 2), "weight": (5, 7), "zero": (3, 4), "bias": (5,)}
DECAY = 0.05
# case: settings, and the learning rate
LARS = {"lars": ({"momentum": 0.9, "trust": 0.02}, 1.0), "lars/plain": ({"momentum": 0.0, "trust": 0.1}, 0.5)}
LAMB = {"lamb": ({"beta1": 0.9, "beta2": 0.999, "eps": 1e-6}, 0.02),
        "lamb/betas": ({"beta1": 0.8, "beta2": 0.95, "eps": 1e-3}, 0.01)}


def trust_ratio(name: str, parameter: torch.Tensor, other: torch.Tensor, ratio) -> float:
    """Returns ratio(|p|, |other|), or 1 for biases and if a norm is 0."""
    norms = parameter.norm(), other.norm()
    return ratio(*norms) if name != "bias" and min(norms) > 0 else 1.0


class Lars:
    """Algorithm 1 of You, Gitman and Ginsburg, arXiv:1708.03888."""

    def __init__(self, parameters: dict, momentum: float, trust: float):
        self.parameters, self.momentum, self.trust = parameters, momentum, trust
        self.buffers = {name: torch.zeros_like(p) for name, p in parameters.items()}

    @torch.no_grad()
    def step(self, rate: float) -> None:
        for name, w in self.parameters.items():
            decay = 0.0 if name == "bias" else DECAY
            local = trust_ratio(name, w, w.grad, lambda p, g: self.trust * p / (g + decay * p))
            self.buffers[name] = self.momentum * self.buffers[name] + rate * local * (w.grad + decay * w)
            w.sub_(self.buffers[name])


class Lamb:
    """Algorithm 2 of You et al., arXiv:1904.00962."""

    def __init__(self, parameters: dict, beta1: float, beta2: float, eps: float):
        self.parameters, self.betas, self.eps, self.steps = parameters, (beta1, beta2), eps, 0
        self.first = {name: torch.zeros_like(p) for name, p in parameters.items()}
        self.second = {name: torch.zeros_like(p) for name, p in parameters.items()}

    @torch.no_grad()
    def step(self, rate: float) -> None:
        self.steps += 1
        beta1, beta2 = self.betas
        for name, x in self.parameters.items():
            decay = 0.0 if name == "bias" else DECAY
            self.first[name] = beta1 * self.first[name] + (1 - beta1) * x.grad
            self.second[name] = beta2 * self.second[name] + (1 - beta2) * x.grad**2
            m = self.first[name] / (1 - beta1**self.steps)
            v = self.second[name] / (1 - beta2**self.steps)
            update = m / (v.sqrt() + self.eps) + decay * x
            x.sub_(rate * trust_ratio(name, x, update, lambda p, u: p / u) * update)


def compute() -> dict:
    out = {}
    for make, cases in (Lars, LARS), (Lamb, LAMB):
        for case, (settings, rate) in cases.items():
            parameters = {name: tensor(f"{case}/{name}", *shape) for name, shape in SHAPES.items()}
            with torch.no_grad():
                parameters["zero"].zero_()
            optimizer = make(parameters, **settings)
            run(out, case, parameters, lambda step: optimizer.step(rate * (1 - step / 10)))
    return out
