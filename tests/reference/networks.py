"""Computes losses of short trainings, logits of torchvision's ResNets, and the names of their parameters."""

import torch
import torch.nn.functional as F
import torchvision
from torch import nn
from torchvision.models.resnet import BasicBlock

import formula

STEPS = 20
BATCHES = 4  # cycled, so that the losses fall


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 6, 5), nn.Conv2d(6, 16, 5)
        self.fc1, self.fc2, self.fc3 = nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2).flatten(1)
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x)))))


class ResNet20(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16)
        self.layer1, self.layer2, self.layer3 = self.group(16, 16, 1), self.group(16, 32, 2), self.group(32, 64, 2)
        self.fc = nn.Linear(64, 10)

    @staticmethod
    def group(inputs: int, width: int, stride: int) -> nn.Sequential:
        downsample = None
        if stride != 1:
            downsample = nn.Sequential(nn.Conv2d(inputs, width, 1, stride, bias=False), nn.BatchNorm2d(width))
        return nn.Sequential(
            BasicBlock(inputs, width, stride, downsample), BasicBlock(width, width), BasicBlock(width, width)
        )

    def forward(self, x):
        x = self.layer3(self.layer2(self.layer1(F.relu(self.bn1(self.conv1(x))))))
        return self.fc(x.mean(dim=(2, 3)))


def fill(model: nn.Module) -> nn.Module:
    """Sets every parameter and buffer from the formula."""
    for name, tensor in model.state_dict().items():
        if not name.endswith("num_batches_tracked"):
            tensor.copy_(torch.from_numpy(formula.model_values(name, tuple(tensor.shape))))
    return model


def batch(step: int, count: int, size: int, dtype: torch.dtype):
    images = torch.from_numpy(formula.values(f"images{step % BATCHES}", (count, 3, size, size))).to(dtype)
    return images, torch.from_numpy(formula.labels(f"labels{step % BATCHES}", count, 10))


def train(model: nn.Module, dtype: torch.dtype, count: int, size: int, before_step=None, **settings) -> torch.Tensor:
    """Returns the mean loss over the batch before each step."""
    optimizer = torch.optim.SGD(model.parameters(), momentum=0.9, **settings)
    losses = []
    for step in range(STEPS):
        if before_step is not None:
            before_step(step)
        images, labels = batch(step, count, size, dtype)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return torch.tensor(losses, dtype=torch.float64)


def lenet(out: dict) -> None:
    for dtype, name in ((torch.float32, "f32"), (torch.float64, "f64")):
        out[f"lenet/losses_{name}"] = train(fill(LeNet()).to(dtype), dtype, 32, 32, lr=0.05)


def resnet20(out: dict) -> None:
    """Stores losses in float64, and one-step values in float32: loss and gradient norm from each state of the float64
    training, rounded to float32. Batch norm amplifies rounding, so whole float32 trainings drift apart."""
    count, size = 16, 16
    model, single = fill(ResNet20()).double(), ResNet20()
    losses, norms = [], []

    def one_step_in_f32(step: int) -> None:
        single.load_state_dict(model.state_dict())
        single.zero_grad()
        images, labels = batch(step, count, size, torch.float32)
        loss = F.cross_entropy(single(images), labels)
        loss.backward()
        losses.append(loss.item())
        norms.append(torch.stack([p.grad.double().square().sum() for p in single.parameters()]).sum().sqrt())

    out["resnet20/losses_f64"] = train(
        model, torch.float64, count, size, one_step_in_f32, lr=0.02, nesterov=True, weight_decay=5e-4
    )
    out["resnet20/losses_f32"] = torch.tensor(losses, dtype=torch.float64)
    out["resnet20/gradient_norms_f32"] = torch.stack(norms)
    out["resnet20/final_logits_f64"] = model.eval()(batch(0, count, size, torch.float64)[0])  # running statistics


def logits(out: dict) -> None:
    resnet18 = torchvision.models.resnet18(num_classes=10)  # with the stem for small images
    resnet18.conv1, resnet18.maxpool = nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.Identity()
    resnet50 = torchvision.models.resnet50(num_classes=10)
    for name, model, size in (("resnet18_cifar", resnet18, 32), ("resnet50_imagenet", resnet50, 64)):
        images = torch.from_numpy(formula.values("images0", (2, 3, size, size))).double()
        out[f"{name}/logits"] = fill(model).double().eval()(images)


def compute() -> dict:
    out = {}
    lenet(out)
    resnet20(out)
    with torch.no_grad():
        logits(out)
    return out


def names() -> dict:
    """Returns {model: [[name, shape] of parameters and buffers]} in torchvision's order, without num_batches_tracked."""
    makers = {name: getattr(torchvision.models, name) for name in ("resnet18", "resnet34", "resnet50")}
    return {
        name: [[key, list(t.shape)] for key, t in make().state_dict().items() if not key.endswith("num_batches_tracked")]
        for name, make in makers.items()
    }


def timm_names() -> dict:
    """Returns {model: [names of parameters and buffers]} in the order of timm's checkpoints."""
    import timm

    return {name: list(timm.create_model(name).state_dict()) for name in ("resnet18", "resnet34", "resnet50")}
