#!/usr/bin/env python3
"""Compares the losses of twenty training steps in Convoy and PyTorch from the same weights and images.

    python3 bench/python/pytorch_losses.py --convoy build/release/bin/convoy-train --model resnet20 --device cpu

PyTorch initializes the weights, which convoy-train loads with --init-from. Both train on the same generated images,
with all images in every step so that the order is irrelevant: Nesterov SGD, weight decay, label smoothing, no augmentation.

The reference is PyTorch in double precision. The error of Convoy's losses may be --slack times that of PyTorch in the
same precision, plus a floor for rounding, because batch norm and ReLU amplify rounding over the steps on both sides.
PyTorch's error is the maximum of four runs; three of them start from weights perturbed by one rounding. Parameters and
running statistics after the last step are compared by the norm of the difference in the same way. In double precision
only the order of sums differs, so any mistake is visible. Exits with 1 if an error is larger. Needs a Python
interpreter with torch.
"""

import argparse
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

import torch

sys.dont_write_bytecode = True
import generated_images  # noqa: E402
import pytorch_models  # noqa: E402
import pytorch_precision  # noqa: E402

LABEL_SMOOTHING, WEIGHT_DECAY, MOMENTUM = 0.1, 5e-4, 0.9
LOSS_SCALE = 1024.0  # for fp16; fixed, so that both sides skip the same steps
PEER_RUNS = 4
# The floor of a relative error is ROUNDINGS times the unit roundoff of the multiplications.
ROUNDOFF = {"fp64": 2.0**-53, "fp32": 2.0**-24, "tf32": 2.0**-11, "fp16": 2.0**-11, "bf16": 2.0**-8}
ROUNDINGS = 16
SAFETENSORS = {"F64": torch.float64, "F32": torch.float32}


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, tensor in tensors.items():
        kind = next(key for key, dtype in SAFETENSORS.items() if dtype == tensor.dtype)
        raw = bytes(tensor.contiguous().view(torch.uint8).flatten().tolist())
        header[name] = {"dtype": kind, "shape": list(tensor.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def read_safetensors(path):
    """Returns the floating-point tensors of a file in double precision."""
    data = path.read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    tensors = {}
    for name, entry in json.loads(data[8:8 + length]).items():
        if name != "__metadata__" and entry["dtype"] in SAFETENSORS:
            begin, end = entry["data_offsets"]
            raw = torch.frombuffer(bytearray(data[8 + length + begin:8 + length + end]),
                                   dtype=SAFETENSORS[entry["dtype"]])
            tensors[name] = raw.reshape(entry["shape"]).double()
    return tensors


def train_convoy(arguments, data, initial, out):
    """Trains and returns the losses, the final state, and the normalization of the images."""
    command = [arguments.convoy, "--model", arguments.model, "--dataset", "folder", "--data", data, "--augment", "none",
               "--device", arguments.device, "--precision", arguments.precision, "--init-from", initial,
               "--batch-size", arguments.batch_size, "--max-steps", arguments.steps, "--lr", arguments.lr,
               "--schedule", "constant", "--momentum", MOMENTUM, "--weight-decay", WEIGHT_DECAY, "--label-smoothing",
               LABEL_SMOOTHING, "--log-every", 1, "--eval-every", 0, "--save-every", arguments.steps, "--out", out]
    if arguments.precision == "fp16":
        command += ["--loss-scale", LOSS_SCALE]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"convoy-train: code {done.returncode}: {(done.stderr.strip().splitlines() or ['no output'])[-1]}")
    log = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    checkpoint = out / "checkpoints" / (out / "checkpoints" / "LATEST").read_text().strip()
    spec = json.loads(json.loads((checkpoint / "manifest.json").read_text())["extra"]["input"])
    losses = [line["loss"] for line in log if line["event"] == "step"]
    return losses, read_safetensors(checkpoint / "model.safetensors"), spec


def train_pytorch(arguments, precision, state, images, labels):
    """Trains and returns the losses and the final state."""
    pytorch_precision.set_arithmetic(precision)
    dtype = pytorch_precision.master_dtype(precision)
    network = pytorch_models.build(arguments.model, arguments.image_size)
    network.to(arguments.device, dtype).train()
    network.load_state_dict(state)
    images, labels = images.to(arguments.device, dtype), labels.to(arguments.device)
    optimizer = torch.optim.SGD(pytorch_models.decay_groups(network, WEIGHT_DECAY), lr=arguments.lr, momentum=MOMENTUM,
                                nesterov=True)
    scaler = torch.amp.GradScaler(arguments.device, LOSS_SCALE, growth_interval=2**30, enabled=precision == "fp16")
    losses = []
    for _ in range(arguments.steps):
        with pytorch_precision.autocast(arguments.device, precision):
            loss = torch.nn.functional.cross_entropy(network(images), labels, label_smoothing=LABEL_SMOOTHING)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    final = {name: tensor.detach().cpu().double() for name, tensor in network.state_dict().items()}
    return losses, final


def rounded(state, dtype, seed):
    """Returns the weights, each randomly changed by -1, 0 or +1 times the machine epsilon, relative."""
    generator = torch.Generator().manual_seed(seed)
    epsilon = torch.finfo(dtype).eps

    def moved(tensor):
        return tensor * (1 + epsilon * torch.randint(-1, 2, tensor.shape, generator=generator).to(dtype))

    return {name: moved(tensor) if tensor.is_floating_point() else tensor for name, tensor in state.items()}


def running_errors(losses, right):
    """Returns the largest relative error up to each step."""
    largest, errors = 0.0, []
    for found, exact in zip(losses, right):
        error = abs(found - exact) / abs(exact)
        largest = error if not error <= largest else largest  # NaN stays
        errors.append(largest)
    return errors


def near(found, peers, floor, slack):
    """Returns whether an error is within the bound given by PyTorch's errors. NaN is not."""
    return found <= slack * max(peers) + floor


def state_error(found, right):
    """Returns the norm of the difference divided by the norm of `right`, whose names `found` must have."""
    names = [name for name in right if not name.endswith("num_batches_tracked")]
    missing = [name for name in names if name not in found or found[name].shape != right[name].shape]
    if missing:
        sys.exit(f"convoy-train's checkpoint: {missing[0]} is missing or has another shape")

    def norm(tensors):
        return torch.cat([tensor.flatten() for tensor in tensors]).norm().item()

    return norm([found[name] - right[name] for name in names]) / norm([right[name] for name in names])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--convoy", default="build/release/bin/convoy-train")
    parser.add_argument("--model", default="resnet20", choices=pytorch_models.MODELS)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--precision", default="fp32", choices=pytorch_precision.PRECISIONS)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=40)
    parser.add_argument("--image-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--slack", type=float, default=4, help="maximum error as a multiple of PyTorch's error")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pytorch-device", choices=["cpu", "cuda"], help="default: that of --device")
    parser.add_argument("--json", type=pathlib.Path, help="result file (JSON)")
    arguments = parser.parse_args()
    if arguments.batch_size < generated_images.CLASSES:
        parser.error(f"--batch-size: found {arguments.batch_size}, expected {generated_images.CLASSES} or more: "
                     "one image of each class")

    torch.manual_seed(arguments.seed)
    dtype = pytorch_precision.master_dtype(arguments.precision)
    state = pytorch_models.build(arguments.model, arguments.image_size).to(dtype).state_dict()
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        written = generated_images.write_dataset(work / "data", arguments.image_size, arguments.batch_size,
                                                seed=arguments.seed)
        write_safetensors(work / "initial.safetensors", {name: tensor for name, tensor in state.items()
                                                        if tensor.is_floating_point()})
        ours, our_state, spec = train_convoy(arguments, work / "data", work / "initial.safetensors", work / "out")
    arguments.device = arguments.pytorch_device or arguments.device
    side = arguments.image_size
    pixels = torch.tensor([list(image) for _, image in written], dtype=torch.float64).reshape(-1, side, side, 3) / 255
    mean, inverse_std = (torch.tensor(spec[key], dtype=torch.float64) for key in ("mean", "inverse_std"))
    images = ((pixels - mean) * inverse_std).permute(0, 3, 1, 2).contiguous()
    labels = torch.tensor([label for label, _ in written])
    right, right_state = train_pytorch(arguments, "fp64", state, images, labels)
    peers = [train_pytorch(arguments, arguments.precision, rounded(state, dtype, run) if run else state, images, labels)
             for run in range(PEER_RUNS)]

    floor, slack = ROUNDINGS * ROUNDOFF[arguments.precision], arguments.slack
    errors = running_errors(ours, right)
    peer_errors = list(zip(*(running_errors(losses, right) for losses, _ in peers)))
    error = state_error(our_state, right_state)
    peer_state_errors = [state_error(final, right_state) for _, final in peers]
    agree = (len(ours) == len(right) and near(error, peer_state_errors, floor, slack) and
             all(near(one, theirs, floor, slack) for one, theirs in zip(errors, peer_errors)))
    figures = {
        "model": arguments.model,
        "precision": arguments.precision,
        "steps": len(ours),
        "torch": torch.__version__,
        "loss_error": errors[-1],
        "loss_error_pytorch": max(peer_errors[-1]),
        "state_error": error,
        "state_error_pytorch": max(peer_state_errors),
        "floor": floor,
        "slack": slack,
        "agree": agree,
        "losses": ours,
        "losses_pytorch": peers[0][0],
        "losses_double": right
    }
    print(f"{arguments.model}, {arguments.precision}, {len(ours)} steps, PyTorch {torch.__version__}: "
          f"loss {ours[0]:.6f} to {ours[-1]:.6f}")
    print(f"  largest relative error of a loss    {errors[-1]:.1e}, PyTorch's {max(peer_errors[-1]):.1e}")
    print(f"  of parameters and statistics        {error:.1e}, PyTorch's {max(peer_state_errors):.1e}")
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n")
    if not agree:
        sys.exit(f"Convoy's error exceeds {slack:g} times PyTorch's error plus {floor:.1e}")


if __name__ == "__main__":
    main()
