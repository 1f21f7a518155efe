"""Convoy's networks in plain PyTorch, with the same layers and parameter names."""

from torch import nn

MODELS = ("lenet", "resnet20", "resnet18", "resnet34", "resnet50")
EXPANSION = 4  # of a bottleneck


class Block(nn.Module):
    """A residual block: relu(body(x) + shortcut(x))."""

    def __init__(self, inputs, width, stride, bottleneck):
        super().__init__()
        outputs = width * EXPANSION if bottleneck else width
        # Two 3x3 convolutions, or a bottleneck of 1x1, 3x3 and 1x1. The first 3x3 has the stride.
        shapes = (((inputs, width, 1, 1), (width, width, 3, stride), (width, outputs, 1, 1)) if bottleneck else
                  ((inputs, width, 3, stride), (width, width, 3, 1)))
        self.depth = len(shapes)
        for i, (channels_in, channels_out, kernel, step) in enumerate(shapes, 1):
            self.add_module(f"conv{i}", nn.Conv2d(channels_in, channels_out, kernel, step, kernel // 2, bias=False))
            self.add_module(f"bn{i}", nn.BatchNorm2d(channels_out))
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = x
        for i in range(1, self.depth + 1):
            y = getattr(self, f"bn{i}")(getattr(self, f"conv{i}")(y))
            if i < self.depth:
                y = self.relu(y)
        return self.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    """He et al., arXiv:1512.03385, for 3-channel images, with a 3x3 stem ("cifar") or 7x7 and max-pool ("imagenet")."""

    def __init__(self, groups, width, stem, classes, bottleneck):
        super().__init__()
        kernel, stride = (3, 1) if stem == "cifar" else (7, 2)
        self.conv1 = nn.Conv2d(3, width, kernel, stride, kernel // 2, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.Identity() if stem == "cifar" else nn.MaxPool2d(3, 2, 1)
        channels, self.groups = width, len(groups)
        for group, blocks in enumerate(groups):
            layers = []
            for i in range(blocks):
                layers.append(Block(channels, width << group, 2 if group > 0 and i == 0 else 1, bottleneck))
                channels = (width << group) * (EXPANSION if bottleneck else 1)
            self.add_module(f"layer{group + 1}", nn.Sequential(*layers))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(channels, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        for group in range(self.groups):
            x = getattr(self, f"layer{group + 1}")(x)
        return self.fc(self.avgpool(x).flatten(1))


class LeNet(nn.Module):
    """Two 5x5 convolutions and three linear layers, for 32x32 images with 3 channels."""

    def __init__(self, classes):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 5)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * 5 * 5, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, classes)

    def forward(self, x):
        x = nn.functional.max_pool2d(self.conv1(x).relu(), 2)
        x = nn.functional.max_pool2d(self.conv2(x).relu(), 2)
        x = self.fc1(x.flatten(1)).relu()
        return self.fc3(self.fc2(x).relu())


def build(name, image_size, classes=10):
    """Builds the network as convoy-train does: with the ImageNet stem for at least 128 pixels."""
    if name == "lenet":
        return LeNet(classes)
    if name == "resnet20":
        return ResNet((3, 3, 3), 16, "cifar", classes, bottleneck=False)
    groups = (2, 2, 2, 2) if name == "resnet18" else (3, 4, 6, 3)
    return ResNet(groups, 64, "cifar" if image_size < 128 else "imagenet", classes, bottleneck=name == "resnet50")


def decay_groups(network, weight_decay):
    """Returns parameter groups with weight decay for filters and weights, but not for biases and norms."""
    weights = [parameter for parameter in network.parameters() if parameter.dim() > 1]
    others = [parameter for parameter in network.parameters() if parameter.dim() <= 1]
    return [{"params": weights, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]
