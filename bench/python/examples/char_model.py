"""The character model of apps/examples in PyTorch.

python3 bench/python/examples/char_model.py [text file, default README.md] [optimizer steps, default 2000]
"""

import math
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

BYTES, CONTEXT, WIDTH, BATCH_SIZE = 256, 64, 64, 32


class CharModel(nn.Module):
    """Maps bytes [N, T] to the logits of the bytes that follow them, [N, T, 256]."""

    def __init__(self, heads=4, depth=2):
        super().__init__()
        self.bytes, self.positions = nn.Embedding(BYTES, WIDTH), nn.Parameter(0.02 * torch.randn(CONTEXT, WIDTH))
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, heads, 4 * WIDTH, 0.0, "gelu", batch_first=True, norm_first=True)
            for _ in range(depth)
        )
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, BYTES)

    def forward(self, text):
        length = text.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        x = self.bytes(text) + self.positions[:length]
        for layer in self.layers:
            x = layer(x, src_mask=mask, is_causal=True)
        return self.head(self.norm(x))


def loss_of(model, text, begins):
    """Returns the mean loss, in nats, of predicting the byte after each byte of these pieces of text."""
    pieces = torch.stack([text[begin : begin + CONTEXT + 1] for begin in begins])
    return F.cross_entropy(model(pieces[:, :-1]).flatten(0, 1), pieces[:, 1:].flatten())


@torch.no_grad()
def write_text(model, text, count):
    """Continues a text by `count` bytes, each drawn from the distribution that the model predicts."""
    for _ in range(count):
        chances = model(text[None, -CONTEXT:])[0, -1].softmax(0)
        text = torch.cat([text, torch.multinomial(chances, 1)])
    return bytes(text.tolist()).decode(errors="replace")


def main() -> None:
    file = Path(sys.argv[1] if len(sys.argv) > 1 else "README.md")
    steps = int(sys.argv[2]) if len(sys.argv) > 2 else 2000
    torch.set_num_threads(2)
    torch.manual_seed(1)
    text = torch.tensor(list(file.read_bytes()))
    trained = len(text) * 9 // 10
    model = CharModel()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, steps, 0.1, cycle_momentum=False)
    for step in range(1, steps + 1):
        if step == 11:
            begin = time.perf_counter()
        optimizer.zero_grad()
        loss = loss_of(model, text, torch.randint(trained - CONTEXT, (BATCH_SIZE,)))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step == 1 or step % 100 == 0:
            print(f"step {step}/{steps}  loss {loss.item():.3f}, {loss.item() / math.log(2):.2f} bits per byte")
    print(f"{(steps - 10) / (time.perf_counter() - begin):.2f} steps/s")
    with torch.no_grad():
        bits = loss_of(model, text, range(trained, len(text) - CONTEXT, CONTEXT)).item() / math.log(2)
    start = text[trained : trained + CONTEXT]
    print(f"{bits:.2f} bits per byte on the last tenth of the text; its first {CONTEXT} bytes, continued:")
    print(write_text(model, start, 200))


if __name__ == "__main__":
    main()
