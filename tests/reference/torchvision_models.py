"""Computes logits of torchvision's VGG-11, MobileNetV3, ConvNeXt and ResNet-101, and of timm's ViT-Ti/16, in float64.

Next to them is the hash of the names and PyTorch's shapes of all parameters and buffers, without num_batches_tracked.
"""

import timm
import torch
import torchvision

import formula
import networks

CLASSES = 10
SIZE = {"vgg11": 64, "resnet101": 64, "mobilenet_v3_small": 64, "convnext_tiny": 64, "vit_tiny": 48}


def make(name: str) -> torch.nn.Module:
    if name == "vit_tiny":
        return timm.create_model("vit_tiny_patch16_224", img_size=SIZE[name], num_classes=CLASSES)
    return getattr(torchvision.models, name)(num_classes=CLASSES)


def hash_of_names(model: torch.nn.Module) -> torch.Tensor:
    """Returns the bytes of the FNV-1a hash of the sorted lines, such as "fc.bias 10", as in model_test.cpp."""
    lines = sorted(
        f"{name} {' '.join(map(str, tensor.shape))}\n"
        for name, tensor in model.state_dict().items()
        if not name.endswith("num_batches_tracked")
    )
    return torch.tensor(list(formula.fnv1a("".join(lines)).to_bytes(8, "little")), dtype=torch.uint8)


def compute() -> dict:
    out = {}
    with torch.no_grad():
        for name, size in SIZE.items():
            model = networks.fill(make(name).double()).eval()
            out[f"{name}/logits"] = model(torch.from_numpy(formula.values("images0", (2, 3, size, size))).double())
            out[f"{name}/names"] = hash_of_names(model)
    return out
