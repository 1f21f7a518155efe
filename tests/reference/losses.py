"""Computes losses and their gradients, in float64."""

import torch
import torch.nn.functional as F

import formula
from ops import record, tensor


def compute() -> dict:
    out = {}
    for reduction in ("mean", "sum", "none"):
        case = f"mse_loss/{reduction}"
        x, target = tensor(f"{case}/x", 5, 7), tensor(f"{case}/target", 5, 7)
        record(out, case, F.mse_loss(x, target, reduction=reduction).reshape(-1), x=x, target=target)

        for name, function in {"l1_loss": F.l1_loss, "smooth_l1_loss": lambda *x, **r: F.smooth_l1_loss(*x, beta=0.5, **r),
                               "huber_loss": lambda *x, **r: F.huber_loss(*x, delta=0.75, **r)}.items():
            case = f"{name}/{reduction}"
            x, target = tensor(f"{case}/x", 5, 7), tensor(f"{case}/target", 5, 7)
            record(out, case, function(x, target, reduction=reduction).reshape(-1), x=x, target=target)

        case = f"nll_loss/{reduction}"
        x, weight = tensor(f"{case}/x", 7, 5, scale=4), tensor(f"{case}/weight", 5, scale=0.5, offset=1, grad=False)
        labels = torch.from_numpy(formula.labels(f"{case}/labels", 7, 6)) - 1  # -1 is ignored
        record(out, case, F.nll_loss(x, labels, weight, ignore_index=-1, reduction=reduction).reshape(-1), x=x)

        case = f"binary_cross_entropy_with_logits/{reduction}"
        x = tensor(f"{case}/x", 5, 7, scale=40)
        target = tensor(f"{case}/target", 5, 7, scale=0.5, offset=0.5)
        y = F.binary_cross_entropy_with_logits(x, target, reduction=reduction)
        record(out, case, y.reshape(-1), x=x, target=target)

        case = f"kl_divergence/{reduction}"
        x = tensor(f"{case}/x", 5, 7, scale=2, offset=-3)
        target = tensor(f"{case}/target", 5, 7, scale=0.45, offset=0.5)
        record(out, case, F.kl_div(x, target, reduction=reduction).reshape(-1), x=x, target=target)
    for reduction in ("mean", "sum", "none"):
        for smoothing in (0.0, 0.1):
            case = f"cross_entropy/{reduction}_{smoothing}"
            weight = tensor(f"{case}/weight", 5, scale=0.5, offset=1, grad=False)
            labels = torch.from_numpy(formula.labels(f"{case}/labels", 7, 6)) - 1  # -1 is ignored
            targets = {"labels": labels, "probabilities": tensor(f"{case}/p", 7, 5, scale=0.45, offset=0.5, grad=False)}
            for kind, target in targets.items():
                x = tensor(f"{case}/x", 7, 5, scale=4)
                y = F.cross_entropy(x, target, weight, ignore_index=-1, reduction=reduction, label_smoothing=smoothing)
                record(out, f"{case}_{kind}", y.reshape(-1), x=x)
    return out
