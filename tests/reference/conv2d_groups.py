"""Computes convolutions with groups and their gradients, in float64 from inputs that float32 represents exactly."""

import torch.nn.functional as F

from ops import record, tensor

# case: (x [N, I, H, W], output channels, kernel, stride, padding, groups)
CONVOLUTIONS = {
    "conv2d_groups/groups": ((2, 6, 5, 6), 9, 3, 1, 1, 3),
    "conv2d_groups/depthwise": ((2, 16, 7, 6), 16, 3, 2, 1, 16),
    "conv2d_groups/multiplier": ((1, 4, 5, 5), 12, 3, 1, 1, 4),
}
TRANSPOSED = {"conv2d_groups/transposed": ((2, 6, 3, 4), 9, 4, 2, 1, 3)}


def compute() -> dict:
    out = {}
    for case, (shape, channels, kernel, stride, padding, groups) in (CONVOLUTIONS | TRANSPOSED).items():
        is_transposed = case in TRANSPOSED
        first, second = (shape[1], channels // groups) if is_transposed else (channels, shape[1] // groups)
        x, bias = tensor(f"{case}/x", *shape), tensor(f"{case}/bias", channels)
        filter = tensor(f"{case}/filter", first, second, kernel, kernel)
        if is_transposed:
            y = F.conv_transpose2d(x, filter, bias, stride, padding, 0, groups)
        else:
            y = F.conv2d(x, filter, bias, stride, padding, 1, groups)
        record(out, case, y, x=x, filter=filter, bias=bias)
    return out
