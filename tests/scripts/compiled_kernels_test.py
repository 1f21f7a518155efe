#!/usr/bin/env python3
"""Tests of scripts/compiled_kernels.py: planted faults in PTX and in ptxas's report are found and named."""
import contextlib
import io
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import compiled_kernels as reader  # noqa: E402

# map<float> in the source test.cu: y[i] = 2 x[i], four elements per thread.
NAME = "_Z3mapIfEvPT_PKS0_"
GOOD = """\
	ld.global.v4.f32 	{%f1, %f2, %f3, %f4}, [%rd3];
	mul.f32 	%f5, %f1, 0f40000000;
	st.global.v4.f32 	[%rd4], {%f5, %f5, %f5, %f5};
	mov.f64 	%fd1, 0d0000000000000000;
"""
DESIGN = [{"source": "test.cu", "kernel": "map<*", "loads": "16", "stores": "16", "f64": "", "occupancy": "", "local": ""}]


def ptx(body):
    return (f".version 9.0\n.target sm_90\n.address_size 64\n\n.visible .entry {NAME}(\n\t.param .u64 {NAME}_param_0\n)\n"
            f".maxntid 256\n{{\n\t.reg .f32 \t%f<6>;\n{body}\tret;\n\n}}\n")


def report(registers=32, stack=0, shared=""):
    return (f"ptxas info    : Compiling entry function '{NAME}' for 'sm_90'\n"
            f"ptxas info    : Function properties for {NAME}\n"
            f"    {stack} bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
            f"ptxas info    : Used {registers} registers, used 0 barriers{shared}\n")


class Reader(unittest.TestCase):
    def read(self, body=GOOD, **compiled):
        with mock.patch.object(reader, "ptxas", lambda architecture, ptx: report(**compiled)):
            return reader.kernels_of("test.cu", {80: ptx(body), 90: ptx(body)})

    def messages(self, body=GOOD, table=None, design=DESIGN, **compiled):
        return reader.check(self.read(body, **compiled), design, table)

    def table(self, shared=0, **changed):
        return {key: reader.table_row(key, kernel, shared) | changed for key, kernel in self.read().items()}

    def test_accepts_a_kernel_as_designed(self):
        self.assertEqual(self.messages(), [])
        self.assertEqual(self.messages(table=self.table()), [])

    def test_reads_a_kernel_to_its_end(self):
        after_a_block = GOOD.replace("	mul.f32", "{\n.reg .b32 %temp;\n}\n	mul.f32")
        self.assertEqual(self.messages(after_a_block), [])
        next_function = ".visible .func helper()\n{\n	ld.f64 	%fd1, [%rd1];\n	add.f64 	%fd1, %fd1, %fd1;\n}\n"
        self.assertEqual(reader.read_ptx(ptx(GOOD) + next_function), reader.read_ptx(ptx(GOOD)))

    def test_names_a_load_that_is_not_vectorized(self):
        narrow = GOOD.replace("ld.global.v4.f32 	{%f1, %f2, %f3, %f4}", "ld.global.nc.f32 	%f1")
        self.assertEqual(self.messages(narrow), ["test.cu: map<float>: the widest of its global loads has 4 B, by design 16 B"])

    def test_names_a_store_that_is_not_vectorized(self):
        narrow = GOOD.replace("st.global.v4.f32 	[%rd4], {%f5, %f5, %f5, %f5}", "st.global.v2.f32 	[%rd4], {%f5, %f5}")
        self.assertEqual(self.messages(narrow), ["test.cu: map<float>: the widest of its global stores has 8 B, by design 16 B"])

    def test_names_a_double_constant(self):
        double = GOOD + "	cvt.f64.f32 	%fd2, %f1;\n	@%p1 mul.f64 	%fd3, %fd2, 0d4000000000000000;\n"
        self.assertEqual(self.messages(double), ["test.cu: map<float>: has 2 f64 instructions, by design none"])
        self.assertEqual(self.messages(double, design=[DESIGN[0] | {"f64": "yes"}]), [])

    def test_names_local_memory(self):
        self.assertEqual(self.messages(stack=64), [
            f"test.cu: map<float>: uses 64 B of local memory on sm_{a}, by design at most 0 B" for a in (80, 90, 100, 120)])

    def test_names_low_occupancy(self):
        # 116 registers are allocated as 120, so each of the four partitions has room for four warps.
        self.assertEqual(self.messages(registers=116)[0], "test.cu: map<float>: 116 registers allow an occupancy of 25 % "
                                                          "on sm_80, by design at least 50 %")
        self.assertEqual(self.messages(registers=116, design=[DESIGN[0] | {"occupancy": "25"}]), [])

    def test_names_unwanted_instructions(self):
        for body, what in [("	ld.f32 	%f1, [%rd3];\n", "accesses of an unknown address space"),
                           ("	ld.v4.f32 	{%f1, %f2, %f3, %f4}, [%rd3];\n", "accesses of an unknown address space"),
                           ("	red.global.add.f32 	[%rd4], %f1;\n", "atomic operations on floating-point numbers"),
                           ("	mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 	{%f1};\n", "tensor-core instructions")]:
            self.assertEqual(self.messages(GOOD + body), [f"test.cu: map<float>: has {what} by design none"])

    def test_names_missing_tensor_core_instructions(self):
        design = [DESIGN[0] | {"tensor cores": "yes"}]
        copies = "	cp.async.cg.shared.global [%r1], [%rd1], 16, %r2;\n"
        matrices = "	ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r1, %r2, %r3, %r4}, [%r5];\n"
        product = "	mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 	{%f1};\n"
        self.assertEqual(self.messages(GOOD + copies + matrices + product, design=design), [])
        self.assertEqual(self.messages(GOOD + copies + product, design=design),
                         ["test.cu: map<float>: has no loads of matrices, by design some"])

    def test_names_code_that_depends_on_the_architecture(self):
        with mock.patch.object(reader, "ptxas", lambda architecture, ptx: report()):
            kernels = reader.kernels_of("test.cu", {80: ptx(GOOD + "	ld.global.f32 	%f1, [%rd3];\n"), 90: ptx(GOOD)})
        self.assertIn("loads in the PTX for sm_80 that differ", reader.check(kernels, DESIGN, None)[0])

    def test_names_a_kernel_without_design(self):
        self.assertEqual(self.messages(design=[]), ["test.cu: map<float>: has no row in design.csv"])

    def test_compares_with_the_table(self):
        for changed, message in [({"loads": "16x1 4x1"}, "global loads were '16x1 4x1' (bytes x instructions), are '16x1'"),
                                 ({"f64": -1}, "f64 instructions were -1, are 0"),
                                 ({"registers 100": 27}, "registers on sm_100 were 27, are 32"),
                                 ({"local 80": -8}, "local memory on sm_80 was -8 B, is 0 B"),
                                 ({"occupancy 90": 101}, "occupancy on sm_90 was 101 %, is 100 %")]:
            self.assertEqual(self.messages(table=self.table(**changed)), [f"test.cu: map<float>: {message}"])
        self.assertEqual(self.messages(table=self.table(**{"registers 90": 28})), [])

    def test_checks_the_architectures_that_ptxas_knows(self):
        table = self.table()
        with mock.patch.object(reader, "ptxas", lambda architecture, ptx: report(40) if architecture < 100 else None):
            kernels = reader.kernels_of("test.cu", {80: ptx(GOOD), 90: ptx(GOOD)})
        found = reader.check(kernels, DESIGN, table)
        self.assertEqual([message for message in found if "registers on" in message],
                         [f"test.cu: map<float>: registers on sm_{a} were 32, are 40" for a in (80, 90)])
        self.assertFalse([message for message in found if "sm_100" in message])

    def test_compares_the_list_of_kernels_with_the_table(self):
        self.assertEqual(self.messages(table={}), ["test.cu: map<float>: is not in the table"])
        gone = self.table() | {("test.cu", "gone"): {}}
        self.assertEqual(self.messages(table=gone), ["test.cu: gone: is in the table, but no longer in the build"])

    def test_counts_shared_memory_in_the_occupancy(self):
        # An SM of sm_80 has 164 KiB, and the system takes 1 KiB per block: room for three blocks of 48 KiB.
        self.assertEqual(reader.occupancy(80, 256, 32, 48 << 10), 37)
        self.assertEqual(reader.occupancy(90, 256, 32, 48 << 10), 50)
        # One of sm_120 has 100 KiB and 48 warps: two blocks of 8.
        self.assertEqual(reader.occupancy(120, 256, 32, 48 << 10), 33)
        self.assertEqual(reader.occupancy(120, 256, 32, 0), 100)

    def test_the_committed_table_meets_the_design_on_sm_120(self):
        design = reader.rows_of(reader.TABLES / "design.csv")
        for row in reader.rows_of(reader.TABLES / "nvcc-13.0.csv"):
            if int(row["threads"]) > 1 and int(row["registers 100"]) > 0:  # ptxas gives sm_120 about as many
                found = reader.occupancy(120, int(row["threads"]), int(row["registers 100"]), int(row["shared"]))
                minimum = reader.design_of(design, row["source"], row["kernel"])["occupancy"] or reader.MIN_OCCUPANCY
                self.assertGreaterEqual(found, int(minimum), row["kernel"])

    def test_counts_static_shared_memory_too(self):
        static = self.read(shared=", 49152 bytes smem")
        self.assertIn("occupancy of 37 % on sm_80", reader.check(static, DESIGN, None)[0])

    def test_knows_the_designed_widths(self):
        for rule, name, expected in [("tile load", "map_kernel<F<bfloat16, G>, bfloat16, float>", 16),
                                     ("tile store", "map_kernel<F<bfloat16, G>, bfloat16, float>", 8),
                                     ("tile load", "map_kernel<Constant<int>, int>", 0),
                                     ("pack", "select_kernel<unsigned int, 2>", 8),
                                     ("4 elements", "dropout_kernel<(GradMode)0, bfloat16>", 8),
                                     ("16", "sums_kernel<8, bfloat16>", 16), ("16", "sums_kernel<1, bfloat16>", 0),
                                     ("element", "copy_kernel<float>", 0)]:
            self.assertEqual(reader.designed_width(rule, name), expected, (rule, name))

    def test_skips_a_build_whose_objects_have_no_ptx(self):
        with tempfile.TemporaryDirectory() as build, contextlib.redirect_stdout(io.StringIO()):
            self.assertEqual(reader.main(["--build", build]), reader.SKIPPED)
            objects = pathlib.Path(build) / "kernels" / "CMakeFiles" / "convoy_kernels.dir" / "cuda"
            objects.mkdir(parents=True)
            (objects / "test.cu.o").write_bytes(b"\x7fELF compressed")
            self.assertEqual(reader.main(["--build", build]), reader.SKIPPED)


# One fault in each kernel but the first.
SOURCE = """
template <class T> __global__ void __launch_bounds__(256) packs(const float4* x, float4* y) {
  const int i = blockIdx.x * 256 + threadIdx.x;
  float4 v = x[i];
  v.x *= 2;
  y[i] = v;
}
template <class T> __global__ void __launch_bounds__(256) narrow(const T* x, T* y) {
  for (int i = 0; i < 4; ++i) y[4 * threadIdx.x + i] = x[4 * threadIdx.x + i] * 2;
}
template <class T> __global__ void __launch_bounds__(256) constant(const float4* x, float4* y) {
  const int i = blockIdx.x * 256 + threadIdx.x;
  float4 v = x[i];
  v.x *= 1.1;
  y[i] = v;
}
template <class T> __global__ void __launch_bounds__(256) local(const float4* x, float4* y, int at) {
  const int i = blockIdx.x * 256 + threadIdx.x;
  T values[16];
  for (int k = 0; k < 16; ++k) values[k] = x[i].x * k;
  for (int k = 0; k < at; ++k) values[(at * k) & 15] += values[k & 7];
  float4 v = x[i];
  v.y = values[at & 15];
  y[i] = v;
}
template __global__ void packs<float>(const float4*, float4*);
template __global__ void narrow<float>(const float*, float*);
template __global__ void constant<float>(const float4*, float4*);
template __global__ void local<float>(const float4*, float4*, int);
"""


def nvcc():
    return shutil.which("nvcc") or shutil.which(os.path.join(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "bin", "nvcc"))


class CompiledFaults(unittest.TestCase):
    @unittest.skipUnless(nvcc(), "needs nvcc")
    def test_finds_and_names_each_fault_in_an_object_of_nvcc(self):
        with tempfile.TemporaryDirectory() as directory:
            source = pathlib.Path(directory) / "test.cu"
            source.write_text(SOURCE)
            subprocess.run([nvcc(), "--no-compress", "--generate-code=arch=compute_80,code=compute_80",
                            "--generate-code=arch=compute_90,code=[compute_90,sm_90]", "-c", source.name, "-o", "test.o"],
                           cwd=directory, check=True)
            images = reader.ptx_images(source.with_suffix(".o").read_bytes())
        self.assertEqual(sorted(images), [80, 90])
        found = reader.check(reader.kernels_of("test.cu", images), [DESIGN[0] | {"kernel": "*"}], None)
        self.assertEqual({message.split(" on sm_")[0] for message in found}, {
            "test.cu: constant<float>: has 3 f64 instructions, by design none",
            "test.cu: local<float>: uses 64 B of local memory",
            "test.cu: narrow<float>: the widest of its global loads has 4 B, by design 16 B",
            "test.cu: narrow<float>: the widest of its global stores has 4 B, by design 16 B"})


if __name__ == "__main__":
    unittest.main()
