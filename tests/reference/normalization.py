"""Computes layer norm and group norm and their gradients, in float64."""

import torch.nn.functional as F

from ops import record, tensor


def layer_norms(out: dict) -> None:
    for case, shape, axes in [("layer_norm/one_axis", (3, 5, 7), 1), ("layer_norm/two_axes", (3, 5, 7), 2)]:
        x = tensor(f"{case}/x", *shape, scale=2, offset=0.5)
        weight = tensor(f"{case}/weight", *shape[-axes:], scale=0.5, offset=1)
        bias = tensor(f"{case}/bias", *shape[-axes:])
        record(out, case, F.layer_norm(x, shape[-axes:], weight, bias), x=x, weight=weight, bias=bias)
    x = tensor("layer_norm/plain/x", 4, 9)
    record(out, "layer_norm/plain", F.layer_norm(x, (9,), eps=1e-3), x=x)


def group_norms(out: dict) -> None:
    # x is [N, C, H, W] here and [N, H, W, C] in Convoy, and [N, C] in the last case.
    for case, shape, groups in [("group_norm/g2", (2, 6, 3, 4), 2), ("group_norm/g6", (2, 6, 3, 4), 6),
                                ("group_norm/g1", (2, 6, 3, 4), 1), ("group_norm/flat", (3, 8), 2)]:
        x = tensor(f"{case}/x", *shape, scale=2, offset=0.5)
        weight, bias = tensor(f"{case}/weight", shape[1], scale=0.5, offset=1), tensor(f"{case}/bias", shape[1])
        record(out, case, F.group_norm(x, groups, weight, bias), x=x, weight=weight, bias=bias)


def compute() -> dict:
    out = {}
    layer_norms(out)
    group_norms(out)
    return out
