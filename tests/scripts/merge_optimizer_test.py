"""Tests of scripts/merge_optimizer.py."""

import importlib.util
import json
import pathlib
import struct
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "merge_optimizer.py"
spec = importlib.util.spec_from_file_location("merge_optimizer", SCRIPT)
merge = importlib.util.module_from_spec(spec)
spec.loader.exec_module(merge)


def floats(*values):
    return struct.pack(f"<{len(values)}f", *values)


def write_shard(directory, index, count, pieces, own_steps=None):
    """Writes pieces {name: (begin, shape, kind, values)} as a rank does."""
    tensors, metadata = {}, {"format": "pt"} | ({"own_steps": json.dumps(own_steps)} if own_steps else {})
    for name, (begin, shape, kind, values) in pieces.items():
        tensors[name] = ("F32", [len(values)], floats(*values))
        metadata[name] = json.dumps({"begin": begin, "shape": shape, "kind": kind})
    path = pathlib.Path(directory) / f"optimizer-{index + 1:05}-of-{count:05}.safetensors"
    merge.write(path, tensors)
    header, data = merge.read(path)
    header["__metadata__"] = metadata
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(data))


class Merge(unittest.TestCase):
    def test_pieces_become_whole_tensors(self):
        with tempfile.TemporaryDirectory() as directory:
            # A filter [O, kH, kW, I] = [1, 1, 2, 3] in memory is [1, 3, 1, 2] in a checkpoint.
            shape = [1, 1, 2, 3]
            write_shard(directory, 0, 2, {"m/conv": (0, shape, "filter", [0, 1, 2, 3]), "m/fc": (0, [2], "other", [8])})
            write_shard(directory, 1, 2, {"m/conv": (4, shape, "filter", [4, 5]), "m/fc": (1, [2], "other", [9])})
            target = pathlib.Path(directory) / "whole.safetensors"
            merge.write(target, merge.load(directory))
            header, data = merge.read(target)
            self.assertEqual(header["m/conv"]["shape"], [1, 3, 1, 2])
            begin, end = header["m/conv"]["data_offsets"]
            self.assertEqual(bytes(data[begin:end]), floats(0, 3, 1, 4, 2, 5))
            begin, end = header["m/fc"]["data_offsets"]
            self.assertEqual(bytes(data[begin:end]), floats(8, 9))

    def test_steps_of_single_parameters_are_kept(self):
        with tempfile.TemporaryDirectory() as directory:
            write_shard(directory, 0, 2, {"m/fc": (0, [2], "other", [8])}, {"fc": 3})
            write_shard(directory, 1, 2, {"m/fc": (1, [2], "other", [9])}, {"fc": 3, "conv": 0})
            target = pathlib.Path(directory) / "whole.safetensors"
            merge.write(target, *merge.merge(directory))
            metadata = merge.read(target)[0]["__metadata__"]
            self.assertEqual(metadata["format"], "pt")
            self.assertEqual(json.loads(metadata["own_steps"]), {"fc": 3, "conv": 0})
            write_shard(directory, 0, 2, {"m/fc": (0, [2], "other", [8])})
            write_shard(directory, 1, 2, {"m/fc": (1, [2], "other", [9])})
            merge.write(target, *merge.merge(directory))
            self.assertEqual(merge.read(target)[0]["__metadata__"], {"format": "pt"})

    def test_missing_shards_are_refused(self):
        with tempfile.TemporaryDirectory() as directory:
            with self.assertRaisesRegex(SystemExit, "expected a checkpoint with shards"):
                merge.load(directory)
            write_shard(directory, 1, 2, {"m/fc": (0, [1], "other", [9])})
            with self.assertRaisesRegex(SystemExit, "1 shards, expected 2"):
                merge.load(directory)


if __name__ == "__main__":
    unittest.main()
