"""The network and the data set of apps/examples/custom_program in PyTorch, without the flags of convoy-train.

python3 bench/python/examples/custom_program.py [epochs, default 2]
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SIDE = 16


class GatedConv(nn.Module):
    """A convolution whose channels are scaled by a gate, a learned function of the mean over all pixels."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.conv, self.gate = nn.Conv2d(inputs, outputs, 3, padding=1), nn.Linear(outputs, outputs)

    def forward(self, x):
        y = F.relu(self.conv(x))
        return y * torch.sigmoid(self.gate(y.mean((2, 3))))[:, :, None, None]


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.gated1, self.gated2, self.fc = GatedConv(1, 16), GatedConv(16, 32), nn.Linear(32, 3)

    def forward(self, x):
        return self.fc(self.gated2(F.max_pool2d(self.gated1(x), 2)).mean((2, 3)))


def make_stripes(count, seed):
    """Returns grey images [count, 1, 16, 16] with horizontal, vertical or diagonal stripes, and their labels."""
    random = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 3
    y, x = torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="ij")
    position = torch.stack([y, x, x + y])[labels] + torch.randint(8, (count, 1, 1), generator=random)
    noise = torch.randint(-60, 61, (count, SIDE, SIDE), generator=random)
    pixels = (torch.where(position % 8 < 4, 160, 96) + noise).clamp(0, 255)
    return TensorDataset((pixels[:, None] / 255 - 0.502) / 0.186, labels)


def main() -> None:
    epochs = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    torch.manual_seed(1)
    train, test = DataLoader(make_stripes(3000, 1), 128, shuffle=True), DataLoader(make_stripes(600, 2), 128)
    model, best = Gated(), 0.0
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9, nesterov=True, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.2, epochs * len(train), 0.2, cycle_momentum=False)
    for epoch in range(1, epochs + 1):
        for images, labels in train:
            optimizer.zero_grad()
            F.cross_entropy(model(images), labels, label_smoothing=0.1).backward()
            optimizer.step()
            schedule.step()
        with torch.no_grad():
            correct = sum((model(images).argmax(1) == labels).sum().item() for images, labels in test)
        accuracy = correct / len(test.dataset)
        if accuracy > best:
            best = accuracy
            print(f"best so far after epoch {epoch}: {100 * accuracy:.1f}%")


if __name__ == "__main__":
    main()
