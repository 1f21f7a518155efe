"""The fine-tuning of apps/examples in PyTorch: continues with the ResNet-20 of a run of convoy-train.

python3 bench/python/examples/fine_tuning.py RUN|none IMAGES [epochs, default 10]; needs torchvision and safetensors
"""

import math
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch.utils.data import DataLoader
from torchvision import datasets, transforms

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from pytorch_models import build  # noqa: E402

PEAK_RATE, BACKBONE_RATE = 0.1, 0.5


def make_loaders(directory):
    resize = [transforms.Resize((32, 32)), transforms.ToTensor()]
    pixels = torch.stack([image for image, _ in datasets.ImageFolder(directory / "train", transforms.Compose(resize))])
    normalize = transforms.Normalize(pixels.mean((0, 2, 3)), pixels.std((0, 2, 3)))
    augment = [transforms.RandomCrop(32, 4), transforms.RandomHorizontalFlip()]
    train = datasets.ImageFolder(directory / "train", transforms.Compose([*resize, *augment, normalize]))
    test = datasets.ImageFolder(directory / "test", transforms.Compose([*resize, normalize]))
    return DataLoader(train, 64, shuffle=True), DataLoader(test, 128)


def load_backbone(model, run):
    """Copies the parameters and statistics of the best checkpoint of a run, all but those of the last layer."""
    best = (run / "checkpoints" / "BEST").read_text().strip()
    tensors = load_file(run / "checkpoints" / best / "model.safetensors")
    model.load_state_dict({k: v for k, v in tensors.items() if not k.startswith("fc.")}, strict=False)


def main() -> None:
    run, directory = sys.argv[1], Path(sys.argv[2])
    epochs = int(sys.argv[3]) if len(sys.argv) > 3 else 10
    torch.manual_seed(1)
    train, test = make_loaders(directory)
    model = build("resnet20", 32, len(train.dataset.classes))
    if run != "none":
        load_backbone(model, Path(run))
    backbone = [p for name, p in model.named_parameters() if not name.startswith("fc.")]
    rate = PEAK_RATE * (1 if run == "none" else BACKBONE_RATE)
    groups = [{"params": model.fc.parameters()}, {"params": backbone, "lr": rate, "weight_decay": 5e-4}]
    optimizer = torch.optim.SGD(groups, lr=PEAK_RATE, momentum=0.9, nesterov=True)
    steps = epochs * len(train)
    warmup = steps // 5
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda i: (i + 1) / warmup if i < warmup else (1 + math.cos(math.pi * (i - warmup) / (steps - warmup))) / 2,
    )
    for epoch in range(1, epochs + 1):
        model.train()
        for images, labels in train:
            optimizer.zero_grad()
            F.cross_entropy(model(images), labels).backward()
            optimizer.step()
            schedule.step()
        model.eval()
        with torch.no_grad():
            correct = sum((model(images).argmax(1) == labels).sum().item() for images, labels in test)
        print(f"epoch {epoch}: test accuracy {100 * correct / len(test.dataset):.1f}%")


if __name__ == "__main__":
    main()
