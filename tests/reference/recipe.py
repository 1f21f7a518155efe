"""Computes whole steps of the speed recipe in float64: network, loss, rates and optimizers."""

import torch
import torch.nn.functional as F

import formula
import muon
import networks
from speedrun import PIXELS, Speedrun

SMALL, LARGE = ((32, 64, 64), 2, 0.4, 64), ((128, 384, 512), 3, 0.1, 9)
# rates of filters, head and biases
SMALL_RATES, LARGE_RATES, SGD_RATES = (0.12, 0.67, 0.053), (0.12, 0.00115, 0.073), (0.002, 0.05, 0.02)
# network, images (which are one batch), steps, rates
CASES = {"speedrun-small": (SMALL, 16, 4, SMALL_RATES), "speedrun-96": (LARGE, 4, 2, LARGE_RATES),
         "speedrun-small-sgd": (SMALL, 16, 4, SGD_RATES)}  # without Muon
WHITEN_STEPS = 3  # after which the first bias is frozen


def train(out: dict, case: str) -> None:
    plan, count, steps, (filter_rate, head_rate, bias_rate) = CASES[case]
    model = networks.fill(Speedrun(*plan)).double()
    pixels = torch.from_numpy(formula.labels("recipe/images", count * PIXELS * PIXELS * 3, 256))  # bytes, NHWC
    images = pixels.reshape(count, PIXELS, PIXELS, 3).permute(0, 3, 1, 2).double() / 255
    labels = torch.from_numpy(formula.labels("recipe/labels", count, 10))
    filters = [p for p in model.layers.parameters() if p.dim() == 4]
    biases = [p for p in model.layers.parameters() if p.dim() == 1 and p.requires_grad]
    peaks = [bias_rate, bias_rate, head_rate]
    decay = 2e-6 * count  # of a step at the peak of the rate
    decays = [decay / peak for peak in peaks]
    parameters = [[model.whiten.bias], biases, [model.head.weight]]
    spectral = None
    if case == "speedrun-small-sgd":
        parameters.append(filters)
        peaks.append(filter_rate)
        decays[2:] = [decay / filter_rate] * 2  # --lr-for does not change the decay of the head
    else:
        spectral = muon.Recipe(filters, lr=0, momentum=0.6, steps=3)
    sgd = torch.optim.SGD([{"params": each, "weight_decay": own} for each, own in zip(parameters, decays)],
                          lr=0, momentum=0.85, nesterov=True)
    for step in range(steps):
        model.whiten.bias.requires_grad_(step < WHITEN_STEPS)
        model.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(images), labels, label_smoothing=0.2, reduction="sum")
        loss.backward()
        share = 1 - step / steps
        shares = [max(0, 1 - step / min(WHITEN_STEPS, steps)), share, share, share]
        for group, peak, of_peak in zip(sgd.param_groups, peaks, shares):
            group["lr"] = peak * of_peak
        sgd.step()
        if spectral:
            spectral.lr = filter_rate * share
            spectral.step()
        out[f"{case}/loss{step}"] = loss.reshape(1) / count
    for name, parameter in model.named_parameters():
        # The norm, and the inner product with fixed values, to which every element contributes.
        probe = torch.from_numpy(formula.values(f"recipe/{name}", parameter.shape)).double()
        out[f"{case}/{name}/norm"] = parameter.norm().reshape(1)
        out[f"{case}/{name}/probe"] = (parameter * probe).sum().reshape(1)


def compute() -> dict:
    out = {}
    for case in CASES:
        train(out, case)
    return out
