"""The character model of apps/examples in PyTorch, on random bytes: steps per second.

python3 bench/python/examples/char_model.py [steps, default 200] [threads, default 2]
"""

import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

BYTES, CONTEXT, WIDTH = 256, 64, 64


class CharModel(nn.Module):
    def __init__(self, heads=4, depth=2):
        super().__init__()
        self.bytes, self.positions = nn.Embedding(BYTES, WIDTH), nn.Parameter(0.02 * torch.randn(CONTEXT, WIDTH))
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, heads, 4 * WIDTH, 0.0, "gelu", batch_first=True, norm_first=True)
            for _ in range(depth)
        )
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, BYTES)
        self.mask = nn.Transformer.generate_square_subsequent_mask(CONTEXT)

    def forward(self, text):
        x = self.bytes(text) + self.positions
        for layer in self.layers:
            x = layer(x, src_mask=self.mask, is_causal=True)
        return self.head(self.norm(x))


def main() -> None:
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    torch.set_num_threads(int(sys.argv[2]) if len(sys.argv) > 2 else 2)
    torch.manual_seed(1)
    model = CharModel()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1)
    text, following = torch.randint(BYTES, (2, 32, CONTEXT))
    for step in range(-5, steps):
        if step == 0:
            begin = time.perf_counter()
        optimizer.zero_grad()
        loss = F.cross_entropy(model(text).flatten(0, 1), following.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    seconds = time.perf_counter() - begin
    print(f"{steps / seconds:.2f} steps/s, loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
