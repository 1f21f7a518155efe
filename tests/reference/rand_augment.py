"""Computes the operations of torchvision's RandAugment on an image of bytes."""

import torch
from torchvision.transforms import InterpolationMode
from torchvision.transforms.autoaugment import RandAugment, _apply_op

import formula

HEIGHT, WIDTH = 20, 17
MAGNITUDES = 9, 23  # without positions halfway between pixels, which rounding would decide


def image(channels: int) -> torch.Tensor:
    """Returns bytes from 20 to 219, [C, H, W]."""
    pixels = torch.from_numpy(formula.labels(f"rand_augment/{channels}", HEIGHT * WIDTH * channels, 200)) + 20
    return pixels.to(torch.uint8).reshape(HEIGHT, WIDTH, channels).permute(2, 0, 1)


def compute() -> dict:
    results = {}
    for magnitude in MAGNITUDES:
        transform = RandAugment(magnitude=magnitude)
        for name, (levels, signed) in transform._augmentation_space(31, (HEIGHT, WIDTH)).items():
            level = float(levels[magnitude].item()) if levels.ndim > 0 else 0.0
            for sign in (1, -1) if signed else (1,):
                for channels in (1, 3):
                    changed = _apply_op(image(channels), name, sign * level, InterpolationMode.NEAREST, None)
                    results[f"{name}/{sign * magnitude}/{channels}"] = changed.unsqueeze(0)
    return results
