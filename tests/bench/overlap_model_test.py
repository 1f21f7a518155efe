"""Tests of bench/python/overlap_model.py: plans and transfers computed by hand, and the figures of docs/overlap.md."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench" / "python"))
import overlap_model  # noqa: E402

RECORD = ROOT / "bench" / "results" / "xeon-2-cores" / "overlap_resnet18.json"
MILLISECOND = 250048  # elements that a link of a byte per nanosecond transfers in about 1 ms; a multiple of 64


def step_of(*gradients):
    """Returns a step with a backward of 10 ms and gradients given as (elements, ready time in ms)."""
    return {"step_ms": 20, "backward_ms": 10, "gradients": [{"numel": n, "ready_ms": ms} for n, ms in gradients]}


def run(*arguments):
    return subprocess.run([sys.executable, "-B", ROOT / "bench" / "python" / "overlap_model.py", *map(str, arguments)],
                          capture_output=True, text=True, check=False)


class OverlapModel(unittest.TestCase):
    def test_a_transfer_takes_the_latency_and_its_bytes_over_the_bandwidth(self):
        step = step_of((64, 3), (65, 2))
        bucket = [step["gradients"]]
        # 64 elements, 65 padded to 128, and two flags; eight ranks transfer 14/8 of the bytes.
        sizes, total, _ = overlap_model.simulate(step, bucket, 1, 5, 8)
        self.assertEqual(sizes, [4 * (64 + 128 + 2)])
        self.assertAlmostEqual(total, 0.005 + 4 * 194 * 1.75e-6)
        self.assertEqual(overlap_model.simulate(step, bucket, 1, 0, 8, element=2)[0], [2 * (64 + 128 + 2)])

    def test_a_bucket_waits_for_its_last_gradient_and_the_buckets_before_it(self):
        step = step_of((MILLISECOND, 5), (MILLISECOND, 9.5), (MILLISECOND, 2))
        first, second, third = step["gradients"]
        took, flags = 4 * MILLISECOND * 1e-6, 3 * 4 * 1e-6
        self.assertAlmostEqual(overlap_model.simulate(step, [[third, second], [first]], 1, 0, 2)[2],
                               9.5 + 3 * took + flags - 10)
        self.assertEqual(overlap_model.simulate(step_of((64, 1)), [[{"numel": 64, "ready_ms": 1}]], 1, 0, 2)[2], 0)

    def test_plans_group_gradients_by_their_ready_times(self):
        gradients = step_of((200000, 8), (100, 6), (300000, 4), (100, 2))["gradients"]
        groups = {name: [[gradients.index(each) for each in bucket] for bucket in buckets]
                  for name, buckets in overlap_model.plans_of(gradients).items()}
        self.assertEqual(groups, {"convoy": [[3, 2, 1], [0]], "PyTorch's rule": [[3, 2], [1, 0]],
                                  "one bucket": [[3, 2, 1, 0]], "one per parameter": [[3], [2], [1], [0]]})
        megabytes = {name: [round(size / 1e6, 2) for size in overlap_model.simulate(step, buckets, 1, 0, 2)[0]]
                     for step in [json.loads(RECORD.read_text())]
                     for name, buckets in overlap_model.plans_of(step["gradients"]).items()}
        self.assertEqual(megabytes["convoy"], [9.46, 9.44, 9.44, 7.61, 6.63, 1.66, 0.45])  # as in docs/overlap.md
        self.assertEqual(megabytes["PyTorch's rule"], [9.46, 26.49, 8.74])

    def test_the_chapter_has_the_table(self):
        done = run(RECORD, "--scale-to", 1.86)
        self.assertIn(done.stdout, (ROOT / "docs" / "overlap.md").read_text())

    def test_a_trace_is_read(self):
        def span(name, begin, length, rank=0):
            return {"ph": "X", "pid": rank, "name": name, "ts": begin, "dur": length}

        events = [span("forward", 0, 1000), span("backward", 1000, 2000), span("optimizer", 3100, 900),
                  span("bucket 1 (9.4 MB)", 1500, 20), span("bucket 2 (0.4 MB)", 2900, 200), span("backward", 0, 1, 1)]
        with tempfile.NamedTemporaryFile("w", suffix=".json") as trace:
            json.dump({"traceEvents": events}, trace)
            trace.flush()
            self.assertEqual(overlap_model.read_step(pathlib.Path(trace.name)), {
                "step_ms": 4, "backward_ms": 2,
                "gradients": [{"numel": 2350000, "ready_ms": 0.5}, {"numel": 100000, "ready_ms": 1.9}]})

    def test_a_file_without_a_step_is_refused(self):
        for text in ("{", "[]", '{"traceEvents": []}', '{"step_ms": 1}'):
            with tempfile.NamedTemporaryFile("w") as file:
                file.write(text)
                file.flush()
                done = run(file.name)
            self.assertEqual((done.returncode, done.stderr.count("\n")), (1, 1), done.stderr)
            self.assertIn("found no step", done.stderr)


if __name__ == "__main__":
    unittest.main()
