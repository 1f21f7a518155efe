"""Computes transposed convolutions and their gradients, in float64 from inputs that float32 represents exactly."""

import torch.nn.functional as F

from ops import record, tensor

# case: (x [N, I, H, W], output channels, kernel, stride, padding, output padding)
TRANSPOSED_CONVOLUTIONS = {
    "conv2d_transpose/k4s2p1": ((2, 3, 4, 5), 4, 4, 2, 1, 0),
    "conv2d_transpose/k3s2p1o1": ((2, 3, 4, 3), 5, 3, 2, 1, 1),
    "conv2d_transpose/k2s2p0": ((2, 4, 3, 4), 3, 2, 2, 0, 0),
    "conv2d_transpose/k3s1p1": ((1, 16, 5, 5), 16, 3, 1, 1, 0),
}


def compute() -> dict:
    out = {}
    for case, (shape, channels, kernel, stride, padding, output_padding) in TRANSPOSED_CONVOLUTIONS.items():
        x = tensor(f"{case}/x", *shape)
        filter = tensor(f"{case}/filter", shape[1], channels, kernel, kernel)
        bias = tensor(f"{case}/bias", channels)
        y = F.conv_transpose2d(x, filter, bias, stride, padding, output_padding)
        record(out, case, y, x=x, filter=filter, bias=bias)
    return out
