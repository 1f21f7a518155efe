#!/usr/bin/env python3
"""Tests of cuemu. CUEMU_LIBRARY: the directory of the compiled library. CUEMU_PROGRAMS: that of the examples and of
programs/, which CMake has built for checks and counts."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
EXAMPLES, PROGRAMS = ROOT / "examples", ROOT / "tests" / "programs"
sys.path.insert(0, str(ROOT / "cuemu"))

import names  # noqa: E402
import report  # noqa: E402
from source import Refused  # noqa: E402
from translate import Translator  # noqa: E402


def cuemu(*arguments):
    """Runs the program. Returns its exit status and its output."""
    done = subprocess.run([str(ROOT / "bin" / "cuemu"), *map(str, arguments)], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def translated(text):
    """Returns the translation of a file's text, without its first line."""
    with tempfile.TemporaryDirectory() as work:
        path = pathlib.Path(work) / "k.cu"
        path.write_text(text)
        return Translator(work).translate(path).split("\n", 1)[1]


class Translation(unittest.TestCase):
    def test_launches(self):
        self.assertEqual(translated("f<<<2, 256>>>(n, x);"),
                         'cuemu::launch("f", cuemu::shape(2, 256), [=](auto... cuemu_values) CUEMU_PLAIN { f(cuemu_values...); }, n, x);')
        text = translated("a::f<T, std::pair<int, int>> <<< dim3(g(1, 2), 3), b, n * sizeof(T), s >>> ();")
        self.assertIn('cuemu::launch("a::f<T, std::pair<int, int>>", cuemu::shape(dim3(g(1, 2), 3), b, n * sizeof(T), s), ', text)

    def test_keeps_lines_comments_and_strings(self):
        source = 'x(); // f<<<1, 2>>>()\nputs("f<<<1, 2>>>()");\nf<<<1,  // blocks\n  2>>>(a,\n  b);\ny();'
        text = translated(source)
        self.assertEqual(text.count("\n"), source.count("\n"))
        self.assertEqual(text.split("\n")[1], 'puts("f<<<1, 2>>>()");')
        self.assertEqual(text.split("\n")[5], "y();")

    def test_shared_memory(self):
        self.assertEqual(translated("void f() { __shared__ float s[256]; }"),
                         'void f() { auto& s = *cuemu::static_shared<float[256]>("s", [] {}); }')
        text = translated("void f() { volatile __shared__ unsigned a[2][n + 1], b; }")
        self.assertIn('auto& a = *cuemu::static_shared<volatile unsigned[2][n + 1]>("a", [] {});', text)
        self.assertIn('auto& b = *cuemu::static_shared<volatile unsigned>("b", [] {});', text)
        self.assertIn('<float4[8]>("s", [] {}, 128)', translated("void f() { __shared__ __align__(128) float4 s[8]; }"))
        self.assertIn("  T* const s = cuemu::dynamic_shared<T>(\"s\");",
                      translated("void f() {\n#ifdef X\n  extern __shared__ T s[];\n#endif\n}"))
        self.assertIn('static float* const s = cuemu::dynamic_shared<float>("s");', translated("extern __shared__ float s[];"))

    def test_clusters(self):
        kernel = "__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(64) f(int n) {}\n"
        self.assertIn("cuemu::shape(4, 64).in_clusters(2, 1, 1), ", translated(kernel + "f<<<4, 64>>>(1);"))
        self.assertIn("cuemu::launch_in_clusters(dim3(2, 1, 1), &config, f, 1)", translated(kernel + "cudaLaunchKernelEx(&config, f, 1);"))
        self.assertIn("__cluster_barrier_wait()", translated('asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");'))
        self.assertIn("cuemu::map_generic(p, q, rank)", translated('asm("mapa.u64 %0, %1, %2;" : "=l"(p) : "l"(q), "r"(rank));'))

    def test_variables_of_the_device(self):
        text = translated("__device__ int count = 0;\nnamespace a {\n__constant__ float c[2];\n}\n"
                          "__device__ float f(int x) { return x; }\n__device__ constexpr int k = 2;\n")
        self.assertEqual(text.count("CUEMU_DEVICE_VARIABLE"), 2)
        self.assertIn("CUEMU_DEVICE_VARIABLE int count = 0;", text)
        self.assertIn("__device__ float f(int x)", text)

    def test_inline_ptx(self):
        text = translated('void f() {\n  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 "  // rows\n'
                          '    "{%0, %1, %2, %3}, [%4];" : "=r"(a[0]), "=r"(b),\n "=r"(c), "=r"(d) : "r"(f(x, 1)) : "memory");\n}')
        self.assertIn("\n  convoy::emulator::load_matrices(a[0], b, c, d, f(x, 1))\n", text)
        text = translated('asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%3, %2, %1, %0}, {%4, %4, %4, %4}, {%5, %5}, {%0, %1, %2, %3};"'
                          ': "+f"(p), "+f"(q), "+f"(r), "+f"(s) : "r"(a), "r"(b));')
        self.assertIn("cuemu::mma_bf16(s, r, q, p, a, a, a, a, b, b, p, q, r, s)", text)

    def test_headers(self):
        self.assertEqual(subprocess.run([pathlib.Path(os.environ["CUEMU_PROGRAMS"]) / "cuemu_headers"], capture_output=True, text=True).stdout, "328350\n")


class Refusals(unittest.TestCase):
    def refusal(self, text):
        with self.assertRaises(Refused) as caught:
            translated(text)
        return re.sub(r"^.*k\.cu:", "", str(caught.exception))

    def test_name_the_line_and_the_name(self):
        self.assertEqual(self.refusal("int a;\nvoid f() { cudaMallocPitch(&p, &n, 1, 2); }"),
                         "2: CE007: cudaMallocPitch is not supported; cuemu --api lists the names that are")
        for text in ("x = __activemask();", 'asm("bar.sync 1;");', "#if __CUDA_ARCH__ >= 700\n#endif", "__managed__ int x;",
                     "#include <cub/cub.cuh>", "#include <mma.h>", "texture<float> t;tex1Dfetch(t, 0); tex1D(t, 0);"):
            self.assertIn("1: CE007: ", self.refusal(text))

    def test_launches_of_what_may_have_clusters(self):
        self.assertIn("expected the name of a kernel", self.refusal("__global__ void __cluster_dims__(2) f() {}\n#define RUN(k) k<<<2, 32>>>();"))

    def test_declarations_and_launches(self):
        self.assertIn("without a value", self.refusal("void f() { __shared__ int x = 3; }"))
        self.assertIn("outside of a function", self.refusal("__shared__ float s[256];"))
        self.assertIn("1: CE007: ", self.refusal("#define SHARED __shared__\nvoid f() { SHARED float s[2]; }"))
        self.assertIn("dynamic parallelism", self.refusal("__global__ void f() { g<<<1, 1>>>(); }"))
        self.assertIn("found 1 values", self.refusal("void f() { g<<<1>>>(); }"))

    def test_inline_ptx(self):
        load = '"ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"'
        operands = ' : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(e)'
        for text, why in ((load.replace("x4", "x2") + operands, "expected one instruction of: mma.sync"),
                          (load.replace(";", "; bar.sync 1;") + operands, "expected one instruction of: mma.sync"),
                          (load.replace("[%4]", "%4") + operands, "expected {R,R,R,R},[r] with"),
                          (load + operands.replace(' : "r"(e)', ""), "expected {R,R,R,R},[r] with"),
                          (load + operands.replace('"=r"(c)', '"r"(c)'), '%2 of ldmatrix.sync.aligned.m8n8.x4.shared.b16, expected "=r"')):
            self.assertIn(why, self.refusal(f"asm volatile({text});"))

    def test_untranslated_shared_memory_is_an_error_of_the_compiler(self):
        with tempfile.TemporaryDirectory() as work:
            path = pathlib.Path(work) / "k.cpp"
            path.write_text("#include <cuda_runtime.h>\nvoid f() { __shared__ float s[256]; s[0] = 1; }\n")
            done = subprocess.run([os.environ.get("CXX", "g++"), "-std=c++20", "-fsyntax-only", f"-I{ROOT / 'include'}", str(path)],
                                  capture_output=True, text=True)
        self.assertIn("k.cpp:2", done.stderr)

    def test_names_of_the_program_and_of_cuda(self):
        self.assertIn("f", translated("#define cudaCheck(x) (x)\nvoid f() { cudaCheck(cudaFree(p)); }"))
        self.assertIn("cudaMemcpyToSymbol", names.api())
        self.assertNotIn("cudaMallocPitch", names.api())

    def test_bad_usage(self):
        self.assertEqual(cuemu("run", "missing.cu")[0], 3)
        self.assertIn("expected ascending", cuemu("run", "--order", "up", EXAMPLES / "saxpy.cu")[1])
        self.assertIn("expected one of: CE002", cuemu("explain", "CE999")[1])


class Findings(unittest.TestCase):
    def test_each_code_has_a_page_and_each_page_a_code(self):
        pages = {path.stem for path in (ROOT / "findings").glob("CE*.md")}
        used = set()
        for path in [*ROOT.glob("*/*.cpp"), *(ROOT / "cuemu").glob("*.py")]:
            used |= set(re.findall(r"\bCE\d{3}\b", path.read_text()))
        self.assertEqual(pages, used)
        for page in pages:
            self.assertTrue((ROOT / "findings" / f"{page}.md").read_text().startswith(f"# {page}: "))

    def test_explain(self):
        status, text = cuemu("explain", "CE101")
        self.assertEqual(status, 0)
        self.assertIn("__syncthreads()", text)


def reported(program, *arguments, **variables):
    """Runs a program that CMake has built. Returns its exit status, and the findings and launches that it reports."""
    with tempfile.TemporaryDirectory() as work:
        path = pathlib.Path(work) / "report"
        path.write_text("")
        done = subprocess.run([pathlib.Path(os.environ["CUEMU_PROGRAMS"]) / f"cuemu_{program}", *arguments], capture_output=True,
                              env={**os.environ, **variables, "CUEMU_REPORT": str(path)})
        return done.returncode, *report.read(path)


class Mistakes(unittest.TestCase):
    SOURCE, PROGRAM = PROGRAMS / "mistakes.cu", "mistakes"

    def findings(self, mistake):
        """Runs one mistake. Returns the exit status and the findings as (code, line is that of the mistake, message)."""
        lines = [f"{self.SOURCE.name}:{number}" for number, line in enumerate(self.SOURCE.read_text().splitlines(), 1)
                 if re.search(rf"// MISTAKE .*\b{mistake}\b", line)]
        status, found, _ = reported(self.PROGRAM, mistake, CUEMU_CHECK="1")
        return status, [(each["code"], each["place"] in lines, each["message"]) for each in found]

    def expect(self, mistake, code, message):
        status, found = self.findings(mistake)
        self.assertNotEqual(status, 0, mistake)
        self.assertIn((code, True), [each[:2] for each in found], (mistake, found))
        self.assertIn(message, " | ".join(each[2] for each in found), mistake)

    def test_bounds(self):
        self.expect("no_guard", "CE003", "thread 64 of block 0 writes x[64]; x has 64 elements of 4 bytes")
        self.expect("past_shared", "CE003", "thread 8 of block 0 writes s[8]; s has 32 bytes of shared memory")
        self.expect("past_dynamic", "CE003", "writes s[16]; s has 64 bytes of shared memory")
        self.expect("misaligned", "CE003", "thread 0 of block 0 reads 16 bytes at an address that is not a multiple of 16")
        self.expect("small_copy", "CE103", "found an asynchronous copy of 8 bytes with 0 zeros, expected 16 bytes and none or 16")
        self.expect("freed", "CE003", "writes x[0], whose memory was freed")

    def test_uninitialized_memory(self):
        self.expect("uninitialized_shared", "CE002", "thread 16 of block 0 reads s[16], which no thread of the block has written")
        self.expect("uninitialized_global", "CE002", "reads y[0], which neither a kernel nor a copy has written")
        self.expect("copies_uninitialized", "CE002", "a copy reads byte 0 of y")

    def test_pointers_of_the_wrong_side(self):
        self.expect("host_pointer", "CE004", "writes host memory, which a GPU cannot access")
        self.expect("null_pointer", "CE004", "writes address 0, which is a null pointer")
        self.expect("device_pointer", "CE005", "the host reads x[3], which is in the GPU's memory")
        self.expect("copied_by_memcpy", "CE005", "the host accesses x, which is in the GPU's memory")

    def test_barriers_and_warps(self):
        self.expect("divergent", "CE102", "33 of 64 threads wait at __syncthreads()")
        self.expect("foreign_lane", "CE103", "reads the value of lane 16, which is not in mask 0xffff")

    def test_races(self):
        self.expect("adds_without_atomic", "CE101", "thread 1 of block 0 reads s, which thread 0 writes")
        self.expect("relies_on_lockstep", "CE101", "no __syncthreads() is between them")
        self.expect("global_race", "CE101", "which thread 0 writes at mistakes.cu:")
        self.expect("between_blocks", "CE104", "nothing orders the two")

    def test_unchecked_errors(self):
        self.expect("too_many_threads", "CE006", "cudaErrorInvalidConfiguration (invalid configuration argument)")
        self.expect("wrong_direction", "CE006", "cudaErrorInvalidValue")

    def test_streams_and_the_host(self):
        self.expect("missing_wait", "CE106", "the kernel doubles accesses x[0], which the kernel doubles of mistakes.cu:")
        self.expect("graph_does_not_wait", "CE106", "the kernel doubles accesses x[0], which the graph of mistakes.cu:")
        self.expect("host_is_early", "CE106", "the host reads managed[5], which the kernel doubles of mistakes.cu:")

    def test_right_programs_have_no_finding(self):
        for name in ("guarded", "looked_at", "waits", "graph_waits", "host_waits"):
            self.assertEqual(self.findings(name), (0, []), name)


class Clusters(Mistakes):
    SOURCE, PROGRAM = PROGRAMS / "cluster_mistakes.cu", "cluster_mistakes"
    for name in [name for name in dir(Mistakes) if name.startswith("test_")]:
        locals()[name] = None  # those of the other programs

    def test_block_that_leaves_early(self):
        self.expect("leaves_early", "CE107", "maps shared memory of block (1, 0, 0), which has ended")
        self.expect("may_leave_early", "CE107", " of block 1 reads s[0] of block 0, which may have ended; it waits at no barrier of the cluster after that")

    def test_access_before_the_barrier(self):
        self.expect("before_the_barrier", "CE108", "thread 0 of block 0 reads s[0] of block 1, which thread 0 of block 1 writes at cluster_mistakes.cu:")
        self.expect("before_the_barrier", "CE108", "no barrier of the cluster is between them")
        self.expect("arrives_before_it_writes", "CE108", "no barrier of the cluster is between them")
        self.expect("before_it_begins", "CE108", "writes s[0] of block 1, which may not have begun")

    def test_other_mistakes(self):
        self.expect("past_the_end", "CE003", "reads s[32] of block ")
        self.expect("waits_without_arriving", "CE102", "waits at the barrier of the cluster without having arrived at it")
        self.expect("half_at_the_block", "CE102", "16 of 32 threads wait at __syncthreads()")
        self.expect("no_such_rank", "CE103", "maps shared memory of block 2 of a cluster that has 2")
        self.expect("wrong_size", "CE006", "cudaErrorInvalidClusterSize")

    def test_right_program_has_no_finding(self):
        self.assertEqual(self.findings("right"), (0, []))
        for program in (EXAMPLES / "cluster.cu",):
            self.assertEqual(cuemu("check", program), (0, f"{program}: no finding in 4 orders of threads and streams\n"))

    def test_output_of_the_example(self):
        self.assertEqual(cuemu("run", EXAMPLES / "cluster.cu"),
                         (0, "without the opt-in: invalid argument\nmean removed: -511.5 511.5\n"
                             "clusters of 8: no error, block 0 has 7\nclusters of 16: no error, block 0 has 15\nclusters of 16 can run: yes\n"))

    def test_counts(self):
        launch = next(each for each in reported("cluster", CUEMU_COUNT="1")[2] if each["kernel"] == "remove_mean")
        # 2 clusters of 4 blocks of 4 warps: 128 loads of 32 lanes. A block has its values and then the sums of its warps
        # and its own in shared memory, and each of its warps reads the values and four sums of blocks; one warp adds its own four.
        self.assertEqual(launch["global_loads"]["requests"], 8 * 4 * 128)
        self.assertEqual(launch["shared_loads"]["requests"], 8 * (4 * (128 + 4) + 4))
        self.assertEqual(launch["shared_bytes"], 65536 + 16 + 4)

    def test_gpu_without_clusters(self):
        _, found, _ = reported("cluster_mistakes", "right", CUEMU_CHECK="1", CONVOY_EMULATED_CAPABILITY="8.0")
        self.assertIn("cudaErrorNotSupported", found[0]["message"])


class Teaching(unittest.TestCase):
    """Three kernels that every course has: one is right, two have the usual mistake."""

    def messages(self, program):
        return [report.to_string(finding) for finding in reported(program, CUEMU_CHECK="1")[1]]

    def test_histogram_with_atomics_is_right(self):
        self.assertEqual(cuemu("check", EXAMPLES / "histogram.cu"),
                         (0, f"{EXAMPLES / 'histogram.cu'}: no finding in 4 orders of threads and streams\n"))

    def test_gemm_with_a_missing_barrier(self):
        self.assertIn("gemm_missing_barrier.cu:15: CE101: thread (1, 0) of block (0, 0) writes tile_a[0][1], which thread (0, 0) reads "
                      "at gemm_missing_barrier.cu:18; no __syncthreads() is between them", self.messages("gemm_missing_barrier"))
        self.assertEqual(self.messages("gemm"), [])

    def test_softmax_with_a_race(self):
        self.assertIn("softmax_race.cu:20: CE101: thread 1 of block 0 reads shared[0], which thread 0 writes at softmax_race.cu:11; "
                      "no __syncthreads() is between them", self.messages("softmax_race"))
        self.assertEqual(self.messages("softmax"), [])

    def test_counts_of_the_gemm_without_a_barrier(self):
        launch = reported("gemm_missing_barrier", CUEMU_COUNT="1")[2][0]
        # 32 x 32 elements are 4 blocks, with 2 tiles each and a barrier per tile. A warp is 2 rows of 16 threads.
        self.assertEqual(launch["barriers"], 4 * 2 * 1)
        # 4 blocks, 2 tiles, 8 warps, 2 matrices: 128 loads of 2 rows of 64 bytes, 2 sectors each. A load fills a word of a tile.
        self.assertEqual(launch["global_loads"], {"requests": 128, "sectors": 128 * 4, "lanes": 128 * 32, "bytes": 128 * 128})
        self.assertEqual(launch["shared_stores"]["requests"], 128)
        # 16 steps of a sum read 2 words: of tile_a 2 different ones, which lanes share, of tile_b 16, which two rows share.
        self.assertEqual((launch["shared_loads"]["requests"], launch["shared_loads"]["wavefronts"]), (4 * 2 * 8 * 16 * 2,) * 2)

    def test_counts_of_the_softmax_with_a_race(self):
        launch = reported("softmax_race", CUEMU_COUNT="1")[2][0]
        # 100 columns by 2 warps: 64 elements in full, then 32 by the first warp and 4 by the second one: 4 requests, and
        # 4 + 4 + 4 + 1 sectors. x is read three times, for the maximum, the sum and the result.
        self.assertEqual(launch["global_loads"], {"requests": 3 * 4, "sectors": 3 * 13, "lanes": 3 * 100, "bytes": 3 * 400})
        self.assertEqual(launch["global_stores"], {"requests": 4, "sectors": 13, "lanes": 100, "bytes": 400})
        # Each of two reductions: 2 warps store their values, then 1 warp works in the rounds of 32, 16, … 1; a round loads
        # two words and stores one, and the threads of 2 warps read the result. A barrier after the values and each round.
        self.assertEqual(launch["shared_stores"]["requests"], 2 * (2 + 6))
        self.assertEqual(launch["shared_loads"]["requests"], 2 * (6 * 2 + 2))
        self.assertEqual(launch["shared_loads"]["lanes"], 2 * (63 * 2 + 64))
        self.assertEqual(launch["barriers"], 2 * 7)

    def test_right_programs_have_no_finding(self):
        for name in ("reduce", "saxpy", "transpose", "features"):
            self.assertEqual(reported(name, CUEMU_CHECK="1")[:2], (0, []), name)


class Orders(unittest.TestCase):
    def test_output_that_depends_on_the_order(self):
        status, text = cuemu("check", PROGRAMS / "order_of_threads.cu")
        self.assertEqual(status, 1)
        self.assertIn("CE105: the output depends on the order of threads: '7' in ascending order, '0' in descending order", text)

    def test_program_that_a_signal_ends(self):
        with tempfile.TemporaryDirectory() as work:
            path = pathlib.Path(work) / "null.cu"
            path.write_text("__global__ void set(int* p) { *p = 1; }\n"
                            "int main() { set<<<1, 1>>>(nullptr); return cudaDeviceSynchronize(); }\n")
            status, text = cuemu("run", path)
            self.assertEqual(status, 128 + 11)
            self.assertEqual(text, "cuemu: null was ended by SIGSEGV; cuemu check names the line of a wrong access\n")
            self.assertIn("null.cu:1: CE004: thread 0 of block 0 writes address 0, which is a null pointer", cuemu("check", path)[1])


class Counts(unittest.TestCase):
    """Each number is computed by hand from the source; a request is an instruction of a warp."""

    def launches(self, program):
        status, _, launches = reported(program, CUEMU_COUNT="1")
        self.assertEqual(status, 0)
        return {launch["kernel"]: launch for launch in launches}

    def remarks(self, launch):
        return " | ".join(report.remarks(report.grouped([launch])[0]))

    def test_saxpy(self):
        launches = self.launches("saxpy")
        # 1,000 elements: 31 warps of 32 lanes and 4 sectors, and one of 8 lanes and 1 sector; x and y are loaded.
        self.assertEqual(launches["saxpy"]["global_loads"], {"requests": 64, "sectors": 250, "lanes": 2000, "bytes": 8000})
        self.assertEqual(launches["saxpy"]["global_stores"], {"requests": 32, "sectors": 125, "lanes": 1000, "bytes": 4000})
        self.assertRegex("\n".join(report.table(report.grouped([launches["saxpy"]])[0])), r"saxpy\.cu:9 +global store +32 +125 +31\.2")

    def test_histogram(self):
        launch = self.launches("histogram")["histogram"]
        self.assertEqual(launch["global_loads"]["requests"], 4096 // 32)
        self.assertEqual(launch["global_loads"]["sectors"], 4096 // 32)  # 32 lanes load a byte each: one sector
        self.assertEqual(launch["atomics"], 4096 + 4 * 16)  # in shared memory, then one per block and bin
        self.assertEqual(launch["shared_stores"]["requests"], 4)
        self.assertEqual(launch["barriers"], 2 * 4)
        self.assertEqual(launch["shared_bytes"], 64)

    def test_reductions(self):
        launches = self.launches("reduce")
        blocks = 16
        for name, requests, wavefronts in (
                # 8 warps work in the rounds d = 1 to 16, then 4, 2 and 1; two loads each, and the result.
                ("modulo", 2 * (5 * 8 + 4 + 2 + 1) + 1, 2 * (5 * 8 + 4 + 2 + 1) + 1),
                # 4, 2, 1, … 1 warps. In the rounds d = 1 to 16, 8 lanes or pairs of them are in one bank.
                ("strided", 2 * (4 + 2 + 6) + 1, 5 * 16 + 8 + 4 + 2 + 1),
                ("sequential", 2 * (4 + 2 + 6) + 1, 2 * (4 + 2 + 6) + 1),
                ("shuffles", 7, 7)):
            self.assertEqual(launches[name]["shared_loads"]["requests"], blocks * requests, name)
            self.assertEqual(launches[name]["shared_loads"]["wavefronts"], blocks * wavefronts, name)
            self.assertEqual(launches[name]["global_loads"]["sectors"], blocks * 256 // 8, name)
        self.assertRegex(self.remarks(launches["strided"]), r"reduce\.cu:28: CE202: ")
        self.assertRegex(self.remarks(launches["modulo"]), r"reduce\.cu:14: CE203: ")

    def test_transposes(self):
        launches = self.launches("transpose")
        requests = 64 * 64 // 32
        self.assertEqual(launches["naive"]["global_stores"]["sectors"], 32 * requests)  # each lane in another row
        self.assertEqual(launches["tiled<0>"]["global_stores"]["sectors"], 4 * requests)
        self.assertEqual(launches["tiled<0>"]["shared_loads"]["wavefronts"], 32 * requests)  # all words in one bank
        self.assertEqual(launches["tiled<1>"]["shared_loads"]["wavefronts"], requests)
        self.assertRegex(self.remarks(launches["naive"]), r"transpose\.cu:10: CE201: .* asks for 128 bytes and moves 32\.0 sectors")

    def test_gemm(self):
        launch = self.launches("gemm")["gemm"]
        loads = 4 * 2 * 8 * 2  # blocks, tiles, warps, matrices
        self.assertEqual(launch["global_loads"]["requests"], loads)
        self.assertEqual(launch["global_loads"]["sectors"], 4 * loads)  # two rows of 64 bytes
        self.assertEqual(launch["shared_stores"]["wavefronts"], loads)
        self.assertEqual(launch["shared_loads"]["wavefronts"], 16 * loads)
        self.assertEqual(launch["barriers"], 4 * 2 * 2)


class Programs(unittest.TestCase):
    def test_features(self):
        self.assertEqual(cuemu("run", EXAMPLES / "features.cu"), (0, "vectors: 493 13\natomics: 31 32 64\n"
                         "low precision: 0.29980469 1.00000000\ntensor cores: 18 19 146 147, 33 49 161 177\ncopies: 600 408\ngroups: 28 476\nvote: 32\n"))

    def test_count(self):
        status, text = cuemu("count", EXAMPLES / "saxpy.cu")
        self.assertEqual(status, 0)
        self.assertIn("saxpy: 4 blocks of 256 threads, 0 B of shared memory, 0 barriers", text)
        self.assertRegex(text, r"all lines +global load +64 +250")


class Debugging(unittest.TestCase):
    @unittest.skipIf(shutil.which("gdb") is None, "needs gdb")
    def test_stops_in_a_thread(self):
        status, text = cuemu("debug", "--block", "3", "--thread", "7", "--gdb", "next", "--gdb", "print i", EXAMPLES / "saxpy.cu")
        self.assertEqual(status, 0, text)
        self.assertIn("saxpy.cu:8", text)
        self.assertIn("$1 = 775", text)  # 3 * 256 + 7


class Library(unittest.TestCase):
    def test_the_sources_are_those_of_the_build(self):
        """The program compiles the library by itself where no build has done so; the build lists its sources."""
        import build
        listed = set(re.findall(r"\b((?:runtime|counting|checking)/\w+\.cpp)\b", (ROOT / "CMakeLists.txt").read_text()))
        self.assertEqual({str(path.relative_to(ROOT)) for path in build.sources()}, listed)

    def test_includes_nothing_but_itself_and_the_system(self):
        for path in [*ROOT.glob("*/*.cpp"), *ROOT.glob("*/*.h")]:
            for name in re.findall(r'#include "([^"]+)"', path.read_text()):
                self.assertTrue(name.startswith("emulator/") or (path.parent / name).exists(), f"{path}: {name}")


if __name__ == "__main__":
    unittest.main(verbosity=2)
