"""Computes torchvision's changes of saturation and hue of one image, as ColorJitter makes them, without rounding."""

import torch
from torchvision.transforms.functional import adjust_hue, adjust_saturation

import formula

PIXELS = 400
SATURATIONS = 0.0, 0.5, 1.25, 2.0
HUES = -0.5, -0.2, 0.04, 0.31  # of the color circle


def image() -> torch.Tensor:
    """Returns pixels from 0 to 1, [3, 1, W], that are bytes divided by 255."""
    pixels = torch.from_numpy(formula.labels("color_jitter", PIXELS * 3, 256))
    return pixels.double().reshape(1, PIXELS, 3).permute(2, 0, 1) / 255


def compute() -> dict:
    def stored(pixels: torch.Tensor) -> torch.Tensor:
        return (255 * pixels).permute(1, 2, 0).reshape(PIXELS, 3)

    results = {f"saturation/{factor}": stored(adjust_saturation(image(), factor)) for factor in SATURATIONS}
    return results | {f"hue/{turn}": stored(adjust_hue(image(), turn)) for turn in HUES}
