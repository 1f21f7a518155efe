#!/usr/bin/env python3
"""Times training steps of a network in PyTorch: one line of JSON per window.

    echo 20 20 20 | python3 bench/python/pytorch_step.py --model resnet18 --batch-size 128 --device cuda --precision bf16

Reads numbers of steps from stdin and measures one window for each, so that the caller can measure something else in
between while this process stays warm. Prints two lines before: after the first step, and when warm. A step is forward,
loss with label smoothing, backward and Nesterov SGD on one fixed batch on the device. --compile compiles all of them,
but not the optimizer with --eager-optimizer (PyTorch's fused SGD then), or with fp16, whose gradients are scaled. Needs a
Python interpreter with torch.
"""

import argparse
import json
import os
import sys
import time

import torch

sys.dont_write_bytecode = True
import pytorch_models  # noqa: E402
import pytorch_precision  # noqa: E402
from resident_memory import resident_bytes  # noqa: E402

WARMUP_STEPS = 10  # cuDNN autotuning, compilation and CUDA graph capture happen in the first few


class Training:
    """A network, its optimizer and a batch. step() enqueues one training step."""

    def __init__(self, arguments):
        torch.manual_seed(1)
        self.device, self.precision = arguments.device, arguments.precision
        self.on_gpu = arguments.device == "cuda"
        if self.on_gpu:
            torch.backends.cudnn.benchmark = arguments.warmup > 1  # not for a cold start, which is one step
        else:
            torch.set_num_threads(arguments.threads)
        pytorch_precision.set_arithmetic(arguments.precision)
        dtype, layout = pytorch_precision.master_dtype(arguments.precision), getattr(torch, arguments.memory_format)
        network = pytorch_models.build(arguments.model, arguments.image_size)
        network = network.to(self.device, dtype, memory_format=layout)
        self.smoothing = 0.0 if arguments.model == "lenet" else 0.1
        self.network = network
        self.compiles = compiles = arguments.compile != "no"
        compiles_optimizer = compiles and arguments.precision != "fp16" and not arguments.eager_optimizer
        # The compiler fuses the updates of all parameters itself.
        self.optimizer = torch.optim.SGD(pytorch_models.decay_groups(network, 5e-4),
                                         lr=0.01,
                                         momentum=0.9,
                                         nesterov=True,
                                         fused=self.on_gpu and not compiles_optimizer)
        self.scaler = torch.amp.GradScaler(self.device, enabled=arguments.precision == "fp16")
        side = arguments.image_size
        self.images = torch.randn(arguments.batch_size, 3, side, side, device=self.device, dtype=dtype)
        self.images = self.images.contiguous(memory_format=layout)
        self.labels = torch.randint(0, 10, (arguments.batch_size,), device=self.device)
        if compiles:
            self.loss = torch.compile(self.loss, mode=arguments.compile)
        # The first update makes the momenta. A CUDA graph would make them in memory that its next replay overwrites.
        self.next_update = torch.compile(self.update, mode=arguments.compile) if compiles_optimizer else self.update

    def loss(self):
        with pytorch_precision.autocast(self.device, self.precision):
            logits = self.network(self.images)
            return torch.nn.functional.cross_entropy(logits, self.labels, label_smoothing=self.smoothing)

    def update(self):
        self.optimizer.step()

    def step(self):
        """Runs one training step and returns its loss."""
        if self.compiles:  # CUDA graphs may now overwrite the gradients and the loss of the previous step
            torch.compiler.cudagraph_mark_step_begin()
        self.optimizer.zero_grad()
        loss = self.loss()
        self.scaler.scale(loss).backward()
        if self.scaler.is_enabled():
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            self.update()
            self.update = self.next_update
        return loss

    def wait(self):
        if self.on_gpu:
            torch.cuda.synchronize()

    def window_ms(self, steps):
        """Returns milliseconds per step of a window without synchronization inside."""
        self.wait()
        begin = time.perf_counter()
        for _ in range(steps):
            self.step()
        self.wait()
        return (time.perf_counter() - begin) * 1e3 / steps


def say(**figures):
    print(json.dumps(figures), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="resnet18", choices=pytorch_models.MODELS)
    parser.add_argument("--image-size", type=int, default=32)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--precision", default="fp32", choices=pytorch_precision.PRECISIONS)
    parser.add_argument("--memory-format", default="channels_last", choices=["contiguous_format", "channels_last"])
    parser.add_argument("--compile", default="no", help="a mode of torch.compile, such as max-autotune")
    parser.add_argument("--eager-optimizer", action="store_true")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--warmup", type=int, default=WARMUP_STEPS, help="steps before the first window")
    arguments = parser.parse_args()
    if arguments.device == "cuda" and not torch.cuda.is_available():
        sys.exit("PyTorch sees no GPU")

    imported_bytes = resident_bytes("VmRSS")
    training = Training(arguments)
    training.window_ms(1)
    say(event="first step", torch=torch.__version__, start_resident_bytes=imported_bytes)
    for _ in range(arguments.warmup - 1):
        training.step()
    training.wait()
    say(event="warm")
    for line in sys.stdin:
        for steps in line.split():
            figures = {"event": "window", "step_ms": training.window_ms(int(steps))}
            figures["peak_resident_bytes"] = resident_bytes("VmHWM")
            if training.on_gpu:
                figures["peak_bytes"] = torch.cuda.max_memory_allocated()
            say(**figures)


if __name__ == "__main__":
    main()
