#!/usr/bin/env python3
"""Checks that ONNX Runtime computes from an exported checkpoint what Convoy computes, on a whole test set.

tests/apps/common/python_readers_test.cpp runs it on small data. By hand, with a Python that has numpy, onnx and onnxruntime:

    scripts/check_onnx.py --checkpoint RUN --data DIR [--bin build/release/bin]

DIR has the test set of the training, as Convoy reads it: cifar-10-batches-bin/ or MNIST/raw/.

1. convoy-export writes the file, and ONNX's own checker validates it.
2. convoy-evaluate --logits writes the logits of all test images, in fp32. ONNX Runtime computes them from the pixels.
3. They may differ by the rounding of two sums in another order. A sum of K terms has a relative error of about
   2^-24 sqrt(K), and every operation adds 2^-24; the errors of all layers add up. A factor of 8 allows for Winograd's
   algorithm, whose transforms lose up to three bits. The bound is relative to the largest logit.
4. The predicted classes must be equal, unless the two largest logits are closer than twice the bound.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime

UNIT_ROUNDOFF = 2.0**-24
WINOGRAD = 8
BATCH = 500


class Mismatch(Exception):
    pass


def run(*command) -> None:
    words = [str(word) for word in command]
    result = subprocess.run(words, capture_output=True, text=True)
    if result.returncode != 0:
        raise Mismatch(f"{' '.join(words)}: exit code {result.returncode}\n{result.stdout}{result.stderr}")


def read_test_set(directory: pathlib.Path):
    """Returns the test images, u8 [N, C, H, W], and the labels."""
    cifar, mnist = directory / "cifar-10-batches-bin" / "test_batch.bin", directory / "MNIST" / "raw"
    if cifar.exists():
        records = np.fromfile(cifar, np.uint8).reshape(-1, 1 + 3 * 32 * 32)
        return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0]
    if mnist.exists():
        images = np.frombuffer((mnist / "t10k-images-idx3-ubyte").read_bytes(), np.uint8, offset=16)
        labels = np.frombuffer((mnist / "t10k-labels-idx1-ubyte").read_bytes(), np.uint8, offset=8)
        return images.reshape(-1, 1, 28, 28), labels
    raise Mismatch(f"{directory}: found neither cifar-10-batches-bin/test_batch.bin nor MNIST/raw")


def bound_of(model: onnx.ModelProto) -> float:
    """Returns the relative error of the logits that rounding explains."""
    shapes = {tensor.name: list(tensor.dims) for tensor in model.graph.initializer}
    units = 0.0
    for node in model.graph.node:
        units += 1
        if node.op_type in ("Conv", "Gemm"):
            terms = np.prod(shapes[node.input[1]][1:])
            units += (WINOGRAD if node.op_type == "Conv" else 1) * np.sqrt(terms)
    return 2 * units * UNIT_ROUNDOFF


def compare(arguments, work: pathlib.Path) -> None:
    file, npy = arguments.onnx or work / "model.onnx", work / "logits.npy"
    run(arguments.bin / "convoy-export", "--checkpoint", arguments.checkpoint, "--onnx", file)
    model = onnx.load(file)
    onnx.checker.check_model(model, full_check=True)
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    run(arguments.bin / "convoy-evaluate", "--checkpoint", arguments.checkpoint, "--data", arguments.data,
        "--precision", "fp32", "--logits", npy)
    expected = np.load(npy)

    images, labels = read_test_set(arguments.data)
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    found = np.concatenate([
        session.run(["logits"], {"images": images[begin:begin + BATCH].astype(np.float32) / np.float32(255)})[0]
        for begin in range(0, len(images), BATCH)])
    if found.shape != expected.shape or expected.shape != (len(images), len(json.loads(metadata["classes"]))):
        raise Mismatch(f"logits of shape {found.shape}, Convoy's {expected.shape}")

    largest, bound = np.abs(expected).max(), bound_of(model)
    error = np.abs(found - expected).max() / largest
    same = found.argmax(1) == expected.argmax(1)
    top = np.sort(expected, 1)
    decided = top[:, -1] - top[:, -2] > 2 * bound * largest
    print(f"{model.graph.name}, opset {model.opset_import[0].version}: {len(images)} images, logits differ by "
          f"{error:.1e} of the largest ({largest:.2f}), bound {bound:.1e}; {same.sum()} predictions agree; "
          f"accuracy {(found.argmax(1) == labels).mean():.4f}, Convoy's {(expected.argmax(1) == labels).mean():.4f}")
    if not error <= bound:
        raise Mismatch("the logits differ by more than the bound")
    if not same[decided].all():
        raise Mismatch(f"{(~same & decided).sum()} predictions differ")


def main() -> int:
    parser = argparse.ArgumentParser(description="Compares an exported checkpoint with ONNX Runtime on a test set.")
    parser.add_argument("--bin", type=pathlib.Path, default="build/release/bin",
                        help="directory of the programs (default: %(default)s)")
    parser.add_argument("--checkpoint", type=pathlib.Path, required=True, help="checkpoint or run directory")
    parser.add_argument("--data", type=pathlib.Path, required=True,
                        help="directory with cifar-10-batches-bin/ or MNIST/raw/")
    parser.add_argument("--onnx", type=pathlib.Path, help="file to keep; default: a temporary one")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        try:
            compare(arguments, pathlib.Path(work))
        except Mismatch as mismatch:
            print(f"check_onnx: {mismatch}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
