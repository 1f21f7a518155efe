#!/usr/bin/env python3
"""Tests of the Python package convoy with real programs: those on the PATH, or those of an installed wheel.

    python3 -B tests/apps/python/convoy_package_test.py [--readme FILE] [-v]

FILE is apps/python/README.md, whose Python is run. The tests of NumPy, pandas and ONNX Runtime use one of CONVOY_PYTHONS
that has them.
"""

import contextlib
import gzip
import importlib.util
import io
import json
import os
import pathlib
import re
import signal
import struct
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3] if len(pathlib.Path(__file__).resolve().parents) > 3 else pathlib.Path("/")
os.environ["CUDA_VISIBLE_DEVICES"] = ""  # one device computes all
os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # threads that wait must not spin next to other tests
README = ROOT / "apps" / "python" / "README.md"
PAGE = ROOT / "docs" / "files.md"
FLAGS = {"model": "lenet", "dataset": "shapes", "device": "cpu", "batch_size": 32, "threads": 1, "workers": 1}  # of trainings


def has(module):
    return importlib.util.find_spec(module) is not None


MODULES = ["numpy", "pandas", "PIL", "onnxruntime"]


def use_the_python_with_most_modules():
    """Becomes the one of CONVOY_PYTHONS that has more of MODULES than this Python, if any."""
    count = "import importlib.util, sys; print(sum(importlib.util.find_spec(name) is not None for name in sys.argv[1:]))"
    named = os.environ.get("CONVOY_PYTHONS", "").split(":")
    pythons = [sys.executable, *(python for python in [*named, "/usr/bin/python3"] if os.path.exists(python))]
    best = max(pythons, key=lambda python: int(subprocess.run([python, "-c", count, *MODULES], capture_output=True, text=True).stdout or 0))
    if best != sys.executable:
        os.execve(best, [best, "-B", *sys.argv], os.environ | {"CONVOY_PYTHONS": ""})


if __name__ == "__main__":
    use_the_python_with_most_modules()
import convoy  # noqa: E402
import convoy.predictions  # noqa: E402
import convoy.programs  # noqa: E402

needs_numpy = unittest.skipUnless(has("numpy"), "needs a Python that has numpy")
if has("numpy"):
    import numpy


def bmp(width, height, pixel):
    """Returns a BMP file: pixel(x, y) is (red, green, blue)."""
    rows = b""
    for y in reversed(range(height)):
        row = b"".join(bytes(reversed(pixel(x, y))) for x in range(width))
        rows += row + bytes(-len(row) % 4)
    return struct.pack("<2sIIIIiiHHIIiiII", b"BM", 54 + len(rows), 0, 54, 40, width, height, 1, 24, 0, len(rows), 0, 0, 0, 0) + rows


def pattern(x, y):
    return (8 * x, 7 * y, (5 * x * y) % 256)


class ConvoyPackage(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(directory.cleanup)
        cls.work = pathlib.Path(directory.name)
        cls.printed = io.StringIO()
        with contextlib.redirect_stdout(cls.printed):
            cls.run_ = convoy.train(cls.work / "run", max_steps=6, log_every=2, save_every=2, **FLAGS)
        (cls.work / "a.bmp").write_bytes(bmp(32, 32, pattern))
        (cls.work / "-b.bmp").write_bytes(bmp(32, 32, lambda x, y: (255 - x, y, 90)))

    def assert_same(self, found, expected):
        """Predictions in batches of different sizes, which are equal up to rounding."""
        self.assertEqual([each["label"] for each in found], [each["label"] for each in expected])
        for one, other in zip(found, expected):
            self.assertAlmostEqual(one["probability"], other["probability"], places=5)

    def test_training_prints_its_progress(self):
        self.assertIn("step 6/6", self.printed.getvalue())
        self.assertIn("test accuracy", self.printed.getvalue())

    def test_the_log_becomes_a_table(self):
        self.assertEqual([event["step"] for event in self.run_.events("step")], [2, 4, 6])
        self.assertEqual(self.run_.events()[0]["event"], "start")
        table = self.run_.table("step")
        if has("pandas"):
            self.assertEqual(list(table["step"]), [2, 4, 6])
            self.assertEqual(table["loss"].dtype.kind, "f")
        else:
            self.assertEqual(table, self.run_.events("step"))

    def test_results_and_configuration_are_those_of_the_files(self):
        self.assertEqual(self.run_.config["batch-size"], 32)
        self.assertEqual(self.run_.result["steps"], 6)
        self.assertEqual(self.run_.evaluation["count"], 2000)
        self.assertEqual(len(self.run_.evaluation["confusion"]), 10)
        self.assertEqual(self.run_.evaluate()["accuracy"], self.run_.result["best_accuracy"])
        self.assertEqual(self.run_.checkpoint("latest").name, "step_000006")
        with self.assertRaisesRegex(ValueError, "found 'newest', expected 'best' or 'latest'"):
            self.run_.checkpoint("newest")

    def test_an_unfinished_log_is_read_up_to_its_last_whole_line(self):
        copy = self.work / "unfinished"
        copy.mkdir()
        lines = (self.run_.directory / "log.jsonl").read_text().splitlines(keepends=True)
        (copy / "log.jsonl").write_text("".join(lines[:3]) + lines[3][:20])
        run = convoy.Run(copy)
        self.assertEqual(len(run.events()), 3)
        with self.assertRaisesRegex(RuntimeError, "not complete; its log ends with step"):
            run.result
        with self.assertRaisesRegex(FileNotFoundError, "found no checkpoint"):
            run.checkpoint()
        (copy / "log.jsonl").write_text(lines[0] + "[1]\n")
        with self.assertRaisesRegex(ValueError, "log.jsonl:2: expected an event"):
            run.events()

    def test_errors_have_the_message_and_the_exit_code_of_the_program(self):
        with self.assertRaises(convoy.ProgramError) as caught, contextlib.redirect_stdout(io.StringIO()):
            convoy.train(self.work / "wrong", **{**FLAGS, "batch_size": 0})
        self.assertEqual((caught.exception.program, caught.exception.exit_code), ("convoy-train", 2))
        self.assertRegex(caught.exception.message, "^--batch-size: .*expected")
        self.assertIn("(exit code 2)", str(caught.exception))
        with self.assertRaises(convoy.ProgramError) as caught:
            self.run_.predict([self.work / "a.bmp", self.work / "none.png"])
        self.assertEqual(caught.exception.exit_code, 3)
        self.assertIn("none.png", caught.exception.message)
        with self.assertRaises(convoy.ProgramError) as caught:
            convoy.predict(self.work / "no run", [self.work / "a.bmp"])
        self.assertEqual(caught.exception.exit_code, 5)
        with self.assertRaisesRegex(FileNotFoundError, "found no log.jsonl"):
            convoy.Run(self.work)
        with self.assertRaisesRegex(FileNotFoundError, "convoy-none: found neither in .* nor on the PATH"):
            convoy.run_program("convoy-none")

    def test_predictions_are_in_the_order_of_the_images(self):
        a, b = self.work / "a.bmp", self.work / "-b.bmp"
        both = self.run_.predict([a, b.read_bytes()], top=3)
        self.assertEqual([len(each) for each in both], [3, 3])
        for found, expected in zip(self.run_.predict([b, str(a)], top=3), both[::-1]):
            self.assert_same(found, expected)
        self.assert_same(self.run_.predict(a, top=3), both[0])
        self.assertEqual(self.run_.predict([]), [])
        self.assert_same(convoy.predict(self.run_, [a], top=3)[0], both[0])
        probabilities = [each["probability"] for each in self.run_.predict(a, top=10)]
        self.assertAlmostEqual(sum(probabilities), 1, places=5)
        self.assertEqual(probabilities, sorted(probabilities, reverse=True))
        with contextlib.chdir(self.work) if hasattr(contextlib, "chdir") else contextlib.nullcontext():
            self.assert_same(self.run_.predict("-b.bmp" if hasattr(contextlib, "chdir") else b, top=3), both[1])
        with self.assertRaises(IsADirectoryError):
            self.run_.predict([self.work])

    def test_more_images_than_one_call_takes(self):
        limit, convoy.predictions.IMAGES_PER_CALL = convoy.predictions.IMAGES_PER_CALL, 2
        try:
            images = [self.work / name for name in ("a.bmp", "-b.bmp", "-b.bmp", "a.bmp", "a.bmp")]
            found = self.run_.predict(images, top=1)
        finally:
            convoy.predictions.IMAGES_PER_CALL = limit
        self.assertEqual(len(found), 5)
        for one, other in zip(found, self.run_.predict(images, top=1)):
            self.assert_same(one, other)

    @needs_numpy
    def test_arrays_are_predicted_like_files(self):
        file = self.run_.predict(self.work / "a.bmp")
        pixels = numpy.array([[pattern(x, y) for x in range(32)] for y in range(32)], numpy.uint8)
        self.assert_same(self.run_.predict(pixels), file)
        self.assert_same(self.run_.predict(numpy.stack([pixels, pixels[::-1]]))[0], file)
        grey = pixels[:, :, 0]
        self.assert_same(self.run_.predict(grey), self.run_.predict(numpy.repeat(grey[:, :, None], 3, axis=2)))
        with self.assertRaisesRegex(TypeError, "found float64, expected uint8"):
            self.run_.predict(pixels / 255)
        with self.assertRaisesRegex(ValueError, r"found the shape \[32, 32, 4\], expected"):
            self.run_.predict(numpy.zeros((32, 32, 4), numpy.uint8))

    @needs_numpy
    def test_probabilities_are_the_softmax_of_the_logits(self):
        a, b = self.work / "a.bmp", self.work / "-b.bmp"
        found = self.run_.logits([a, b])
        self.assertEqual((found.shape, found.dtype), ((2, 10), numpy.float32))
        self.assertTrue(numpy.allclose(self.run_.logits(b), found[1], atol=1e-5))
        expected = numpy.exp(found[0].astype(float)) / numpy.exp(found[0].astype(float)).sum()
        for each in self.run_.predict(a, top=10):
            self.assertAlmostEqual(each["probability"], expected[each["label"]], places=5)

    @needs_numpy
    def test_weights_are_those_of_the_checkpoint(self):
        weights = self.run_.weights()
        self.assertEqual(sum(value.size for value in weights.values()), self.run_.events("start")[0]["model_parameters"])
        self.assertEqual(weights["conv1.weight"].shape, (6, 3, 5, 5))
        again = self.work / "from_weights"
        with contextlib.redirect_stdout(io.StringIO()):  # the values: a training of rate 0 ends where it begins
            run = convoy.train(again, init_from=self.run_.checkpoint() / "model.safetensors", lr=0, max_steps=1, **FLAGS)
        for name, value in run.weights("latest").items():
            self.assertTrue((value == weights[name]).all(), name)

    @needs_numpy
    def test_all_types_of_safetensors(self):
        file = self.work / "types.safetensors"
        header, data = {"__metadata__": {"a": "b"}}, b""
        for dtype, kind, values in (("F64", "d", [0.5, -2]), ("F32", "f", [0.25, 3]), ("F16", "e", [1.5, -1]),
                                    ("I64", "q", [1 << 40, -1]), ("I32", "i", [7, -7]), ("I16", "h", [300, -3]),
                                    ("I8", "b", [-128, 127]), ("U8", "B", [0, 255]), ("BOOL", "?", [True, False])):
            packed = struct.pack(f"<2{kind}", *values)
            header[dtype] = {"dtype": dtype, "shape": [2, 1], "data_offsets": [len(data), len(data) + len(packed)]}
            data += packed
        header["BF16"] = {"dtype": "BF16", "shape": [], "data_offsets": [len(data), len(data) + 2]}
        data += b"\xc0\x3f"  # 1.5
        text = json.dumps(header).encode()
        file.write_bytes(struct.pack("<Q", len(text)) + text + data)
        found = convoy.load_weights(file)
        self.assertEqual({name: value.ravel().tolist() for name, value in found.items()},
                         {"F64": [0.5, -2], "F32": [0.25, 3], "F16": [1.5, -1], "I64": [1 << 40, -1], "I32": [7, -7], "I16": [300, -3],
                          "I8": [-128, 127], "U8": [0, 255], "BOOL": [True, False], "BF16": [1.5]})
        self.assertEqual((found["F64"].shape, found["BF16"].shape, found["BF16"].dtype), ((2, 1), (), numpy.float32))

    @needs_numpy
    def test_damaged_files_are_refused(self):
        def tensor(**changes):
            text = json.dumps({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]} | changes}).encode()
            return struct.pack("<Q", len(text)) + text + bytes(8)

        file = self.work / "damaged.safetensors"
        for content, found in ((b"", "a header of 0 bytes in a file of 0 bytes"), (b"PK\3\4" + bytes(60), "a header of"),
                               (tensor()[:-1], "found bytes"), (tensor(dtype="F8"), "found dtype F8"),
                               (tensor(shape=[3]), "found bytes"), (tensor(data_offsets=[4, 12]), "found bytes"),
                               (tensor(data_offsets=[-8, 0]), "found bytes"), (tensor(shape=[-1, -2]), "found bytes"),
                               (tensor(shape=None), "a header that is not valid"),
                               (struct.pack("<Q", 2) + b"[]", "a header that is not valid")):
            file.write_bytes(content)
            with self.subTest(content), self.assertRaisesRegex(ValueError, f"damaged.safetensors: .*{re.escape(found)}"):
                convoy.load_weights(file)

    def test_reports_and_exports_are_written(self):
        onnx = self.work / "net.onnx"
        self.run_.export_onnx(onnx)
        self.assertGreater(onnx.stat().st_size, 100_000)
        page = self.run_.report(out=self.work / "page.html")
        self.assertIn("<html", page.read_text(encoding="utf-8"))

    def test_an_interrupt_saves_a_checkpoint(self):
        out = self.work / "interrupted"
        script = "import sys, convoy\nconvoy.train(sys.argv[1], **eval(sys.argv[2]))"
        python = subprocess.Popen([sys.executable, "-B", "-c", script, str(out), repr({**FLAGS, "max_steps": 10**6, "log_every": 1})],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                  # A shell that runs the tests in the background ignores the signal.
                                  preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
        for line in python.stdout:
            if line.startswith("step 3/"):
                break
        python.send_signal(signal.SIGINT)
        rest, errors = python.communicate(timeout=100)
        self.assertIn("KeyboardInterrupt", errors)
        saved = convoy.Run(out).checkpoint("latest")
        self.assertGreaterEqual(json.loads((saved / "manifest.json").read_text())["step"], 3)

    def test_commands_of_a_wheel_become_the_programs(self):
        script = "import sys\nfrom convoy.programs import main\nsys.argv = ['/bin/convoy-predict', *sys.argv[1:]]\nmain()"
        found = subprocess.run([sys.executable, "-B", "-c", script, "--checkpoint", "none", "x.png"], capture_output=True, text=True)
        self.assertEqual(found.returncode, 5)
        self.assertRegex(found.stderr, "^convoy-predict: error: ")

    def test_flags_become_arguments(self):
        self.assertEqual(convoy.programs.to_arguments({"a_b": 1, "c": True, "d": False, "e": None, "f": ["x", 2], "g": pathlib.Path("p q")}),
                         ["--a-b=1", "--c=true", "--d=false", "--f=x,2", "--g=p q"])

    def test_a_program_that_a_signal_ends_is_an_error(self):
        self.assertEqual(convoy.ProgramError("convoy-train", -9, "step 1\n").message, "ended by SIGKILL")
        self.assertEqual(convoy.ProgramError("convoy-train", 1, "").message, "it printed nothing")
        self.assertEqual(convoy.ProgramError("convoy-train", 7, "convoy-train: error: no memory\nbye\n").message, "no memory")

    @needs_numpy
    def test_the_page_runs(self):
        for name, size, count in (("train", 28, 40), ("t10k", 28, 20)):  # MNIST's files with generated digits
            place = self.work / "data" / "mnist"
            place.mkdir(parents=True, exist_ok=True)
            pixels = bytes((i * 37 + i // 784) % 256 for i in range(count * size * size))
            for kind, head, body in (("images-idx3", (0x803, count, size, size), pixels),
                                     ("labels-idx1", (0x801, count), bytes(i % 10 for i in range(count)))):
                with gzip.open(place / f"{name}-{kind}-ubyte.gz", "wb") as file:
                    file.write(struct.pack(f">{len(head)}I", *head) + body)
        block = re.search(r"^```python\n(.*?)^```$", README.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)[1]
        environment = os.environ | {"CONVOY_DATA": str(self.work / "data"), "CUDA_VISIBLE_DEVICES": ""}
        found = subprocess.run([sys.executable, "-B", "-c", block], cwd=self.work, env=environment, capture_output=True, text=True)
        self.assertEqual(found.returncode, 0, found.stdout + found.stderr)
        self.assertRegex(found.stdout, r"(?m)^2 --epochs: ")
        self.assertTrue((self.work / "runs" / "digits" / "report.html").is_file())

    @unittest.skipUnless(has("numpy") and has("PIL") and has("onnxruntime"), "needs a Python that has numpy, PIL, onnxruntime")
    def test_onnx_runtime_predicts_a_photograph_alike(self):
        from PIL import Image

        here = self.work / "onnx"
        here.mkdir()
        self.run_.export_onnx(here / "model.onnx")
        block = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)[-1]
        block += "print(json.dumps(probabilities.tolist()))\n"
        for width, height in ((613, 347), (90, 160), (20, 24)):
            pixels = [((x * 255) // width, (y * 255) // height, (x * y) % 256) for y in range(height) for x in range(width)]
            image = Image.new("RGB", (width, height))
            image.putdata(pixels)
            exif = image.getexif()
            exif[0x0112] = 6  # turned by a quarter
            image.save(here / "photo.jpg", quality=90, exif=exif)
            found = subprocess.run([sys.executable, "-B", "-c", block], cwd=here, capture_output=True, text=True)
            self.assertEqual(found.returncode, 0, found.stderr)
            probabilities = json.loads(found.stdout.splitlines()[-1])
            expected = self.run_.predict(here / "photo.jpg", top=10)
            self.assertTrue(found.stdout.startswith(expected[0]["class"] + " "), found.stdout)
            for each in expected:
                self.assertAlmostEqual(each["probability"], probabilities[each["label"]], delta=1e-3)


if __name__ == "__main__":
    if "--readme" in sys.argv:
        at = sys.argv.index("--readme")
        README = pathlib.Path(sys.argv[at + 1])
        del sys.argv[at : at + 2]
    unittest.main()
