"""Computes index_select and embedding and their gradients, in float64 from inputs of float32."""

import torch
import torch.nn.functional as F

import formula
from ops import record, tensor


def indices(case: str, *shape: int, size: int) -> torch.Tensor:
    """Returns indices from 0 to size - 1, some of them several times."""
    count = torch.Size(shape).numel()
    return torch.from_numpy(formula.labels(f"{case}/indices", count, size)).reshape(shape)


# case: (shape of x, axis, number of indices)
SELECTIONS = {
    "index_select/first": ((5, 3), 0, 40),
    "index_select/middle": ((3, 5, 4), 1, 9),
    "index_select/last": ((2, 3, 4), 2, 7),
}


def compute() -> dict:
    out = {}
    for case, (shape, axis, count) in SELECTIONS.items():
        x = tensor(f"{case}/x", *shape)
        record(out, case, x.index_select(axis, indices(case, count, size=shape[axis])), x=x)
    weight = tensor("embedding/weight", 6, 5)
    record(out, "embedding", F.embedding(indices("embedding", 4, 10, size=6), weight), weight=weight)
    return out
