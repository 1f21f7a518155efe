"""Computes convolutions and pooling with all kinds of windows, and their gradients, in float64 from inputs that float32
represents exactly."""

import torch
import torch.nn.functional as F

from ops import record, tensor

# case: (x [N, I, H, W], filter [O, I / groups, kH, kW], options of torch.nn.Conv2d)
CONVOLUTIONS = {
    "dilated": ((2, 3, 7, 6), (4, 3, 3, 3), {"padding": 2, "dilation": 2}),
    "rectangular": ((2, 3, 9, 6), (4, 3, 2, 3), {"stride": (2, 1), "padding": (0, 2), "dilation": (3, 2)}),
    "grouped": ((2, 4, 7, 6), (6, 2, 3, 3), {"stride": (1, 2), "padding": (3, 1), "dilation": (2, 1), "groups": 2}),
    "same": ((2, 3, 5, 4), (4, 3, 4, 2), {"padding": "same", "dilation": (1, 3)}),
    "reflect": ((2, 3, 4, 5), (4, 3, 3, 3), {"padding": (3, 1), "padding_mode": "reflect"}),
    "replicate": ((2, 3, 4, 5), (4, 3, 2, 3), {"padding": "same", "padding_mode": "replicate"}),
    "circular": ((2, 3, 4, 5), (4, 3, 3, 3), {"stride": 2, "padding": (4, 2), "padding_mode": "circular"}),
}
# case: (x [N, C, H, W], kernel, stride, padding, ceil_mode)
POOLS = {
    "rectangular": ((2, 3, 7, 9), (3, 2), (1, 3), (1, 0), False),
    "ceil": ((2, 3, 8, 6), 3, 2, 0, True),
    "ceil_padded": ((2, 3, 5, 6), (2, 3), (3, 2), 1, True),
    "ceil_larger_than_image": ((2, 3, 2, 4), 3, 2, 0, True),
}
ADAPTIVE = {"7x5_to_3x2": ((2, 3, 7, 5), (3, 2)), "3x2_to_5x4": ((2, 3, 3, 2), (5, 4)), "8x6_to_4x3": ((2, 3, 8, 6), (4, 3)),
            "5x4_to_1": ((2, 3, 5, 4), 1)}


def compute() -> dict:
    out = {}
    for name, (shape, filter_shape, options) in CONVOLUTIONS.items():
        case = f"windows/conv2d_{name}"
        layer = torch.nn.Conv2d(shape[1], filter_shape[0], filter_shape[2:], **options, dtype=torch.float64)
        x, filter, bias = (tensor(f"{case}/{what}", *sizes) for what, sizes in
                           (("x", shape), ("filter", filter_shape), ("bias", filter_shape[:1])))
        record(out, case, torch.func.functional_call(layer, {"weight": filter, "bias": bias}, x), x=x, filter=filter, bias=bias)
    for name, (shape, kernel, stride, padding, ceil_mode) in POOLS.items():
        for kind, pool in {"max": F.max_pool2d, "avg": F.avg_pool2d,
                           "inside": lambda *window, ceil_mode: F.avg_pool2d(*window, ceil_mode, False)}.items():
            case = f"windows/{kind}_{name}"
            x = tensor(f"{case}/x", *shape)
            record(out, case, pool(x, kernel, stride, padding, ceil_mode=ceil_mode), x=x)
    for name, (shape, size) in ADAPTIVE.items():
        for kind, pool in {"max": F.adaptive_max_pool2d, "avg": F.adaptive_avg_pool2d}.items():
            case = f"windows/adaptive_{kind}_{name}"
            x = tensor(f"{case}/x", *shape)
            record(out, case, pool(x, size), x=x)
    return out
