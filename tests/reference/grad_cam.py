"""Computes Grad-CAM (arXiv:1610.02391) of LeNet and of ResNet-20 with their last convolutions, and enlarged maps."""

import torch
import torch.nn.functional as F

import formula
import networks


def grad_cam(model, layer, images, labels):
    seen = []
    hook = layer.register_forward_hook(lambda module, inputs, output: seen.append(output))
    logits = model(images)
    hook.remove()
    (gradients,) = torch.autograd.grad(logits.gather(1, labels[:, None]).sum(), seen[0])
    return F.relu((gradients.mean(dim=(2, 3), keepdim=True) * seen[0]).sum(1)).detach()


def compute() -> dict:
    out = {}
    labels = torch.from_numpy(formula.labels("labels0", 3, 10)).long()
    for name, network, size in (("lenet", networks.LeNet(), 32), ("resnet20", networks.ResNet20(), 16)):
        model = networks.fill(network).double().eval()
        layer = model.conv2 if name == "lenet" else model.layer3[2].conv2
        images, _ = networks.batch(0, 3, size, torch.float64)
        out[f"{name}/of_labels"] = grad_cam(model, layer, images, labels)
        out[f"{name}/of_prediction"] = grad_cam(model, layer, images, model(images).argmax(1))
    maps = torch.from_numpy(formula.values("maps", (2, 3, 4))).double()
    out["enlarged"] = F.interpolate(maps[:, None], (7, 9), mode="bilinear", align_corners=False)[:, 0]
    return out
