"""Computes batched matrix multiplications, attention and their gradients, in float64.

Tensors with four axes are stored with three, [B H, T, D], since the tests convert four axes to channels-last.
"""

import torch
import torch.nn.functional as F

from ops import record, tensor


def matmuls(out: dict) -> None:
    for case, left, right in [("matmul/batch", (3, 4, 5), (3, 5, 2)), ("matmul/left_factors", (3, 4, 5), (5, 2)),
                              ("matmul/right_factors", (4, 5), (3, 5, 2))]:
        a, b = tensor(f"{case}/a", *left), tensor(f"{case}/b", *right)
        record(out, case, a @ b, a=a, b=b)
    x, weight, bias = (tensor(f"linear/{name}", *shape) for name, shape in
                       [("x", (2, 3, 5)), ("weight", (4, 5)), ("bias", (4,))])
    record(out, "linear", F.linear(x, weight, bias), x=x, weight=weight, bias=bias)


def masked(out: dict) -> None:
    """Query 2 has no keys. Half of the keys of the others are masked; the bias is one for all matrices."""
    for case, with_bias in {"attention/mask": False, "attention/mask_and_bias": True}.items():
        x = {"q": tensor(f"{case}/q", 3, 5, 4, scale=2), "k": tensor(f"{case}/k", 3, 6, 4, scale=2),
             "v": tensor(f"{case}/v", 3, 6, 2)}
        mask = torch.arange(30).reshape(5, 6) % 2 == 0
        mask[2] = False
        scores = x["q"] @ x["k"].mT / 2
        if with_bias:
            x["bias"] = tensor(f"{case}/bias", 5, 6)
            scores = scores + x["bias"]
        has_keys = mask.any(-1, keepdim=True)
        p = torch.where(has_keys, scores.masked_fill(~mask & has_keys, -torch.inf).softmax(-1), 0)
        record(out, case, p @ x["v"], **x)


# case: (B, H, T, S, D, Dv), causal, scale
ATTENTIONS = {
    "attention/full": ((2, 2, 7, 9, 4, 3), False, None),
    "attention/causal": ((1, 3, 9, 9, 4, 4), True, None),
    "attention/causal_short": ((1, 2, 9, 5, 4, 4), True, 0.7),
    "attention/scale": ((1, 2, 5, 12, 8, 4), False, 2.5),
}


def attentions(out: dict) -> None:
    for case, ((batch, heads, queries, keys, depth, width), causal, scale) in ATTENTIONS.items():
        flat = {"q": tensor(f"{case}/q", batch * heads, queries, depth, scale=2),
                "k": tensor(f"{case}/k", batch * heads, keys, depth, scale=2),
                "v": tensor(f"{case}/v", batch * heads, keys, width)}
        q, k, v = (x.reshape(batch, heads, *x.shape[1:]) for x in flat.values())
        y = F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
        record(out, case, y.reshape(batch * heads, queries, width), **flat)


def compute() -> dict:
    out = {}
    matmuls(out)
    attentions(out)
    masked(out)
    return out
