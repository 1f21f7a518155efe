#include "tests/apps/tutorials/pages.h"

#include <algorithm>
#include <filesystem>

#include "tests/testing/source_tree/source_path.h"

namespace convoy::testing {
namespace {

namespace fs = std::filesystem;

constexpr Page kPages[] = {
    {"README.md", "convoy-train --model lenet --dataset mnist --max-steps 1 --out runs/lenet-mnist"},
    {"SECURITY.md"},
    {"apps/examples/README.md"},
    {"apps/recipes/README.md"},
    {"bench/README.md"},
    {"comm/transport/shm/README.md"},
    {"docs/augmentation.md"},
    {"docs/data.md"},
    {"docs/distributed.md"},
    {"docs/files.md",
     "convoy-train --model resnet18 --stem imagenet --max-steps 1 --out OUT && convoy-export --checkpoint OUT --onnx "
     "model.onnx && cp OUT/checkpoints/*/model.safetensors resnet18.safetensors"},
    {"docs/from-pytorch.md"},
    {"docs/fine-tuning.md",
     "convoy-train --model resnet18 --stem imagenet --max-steps 1 --out runs/torchvision && cp "
     "runs/torchvision/checkpoints/*/model.safetensors torchvision.safetensors"},
    {"docs/muon.md"},
    {"docs/overlap.md"},
    {"docs/own-network.md"},
    {"docs/profiling.md"},
    {"docs/reliability.md"},
    {"docs/report.md",
     "convoy-train --model lenet --dataset mnist --max-steps 2 --trace trace.json --out runs/a && for run in b c "
     "speedrun-small-cifar10; do cp -r runs/a runs/$run; done && convoy-train --model lenet --dataset mnist --repeat 2 "
     "--out runs/repeated"},
    {"docs/speedrun.md"},
    {"docs/tour.md"},
    {"docs/zero.md"},
};

constexpr Exception kExceptions[] = {
    // Building and testing. PageFlags.BuildCommandsNamePresetsAndSettings checks what these commands name.
    {"", "scripts/setup.sh", "installs packages; scripts/test.sh calls it"},
    {"", "scripts/test.sh", "runs this test"},
    {"", "scripts/package.sh", "builds for minutes, and tests what it built"},
    {"", "scripts/lint.sh",
     "needs clang-format and clang-tidy; scripts/test.sh --all calls it with --checks"},
    {"", "scripts/slowest.py", "reads the report of scripts/test.sh, which calls it"},
    {"", "scripts/fuzz.sh", "searches for minutes; a test runs the same targets", "fuzz_test"},
    {"", "cmake ", "configures, builds or installs; a test installs a build", "package.install"},
    {"", "apt-get ", "installs packages; a test extracts this one", "package.debian"},
    {"", "pip install ", "a test packs and installs a wheel", "package.wheel"},
    {"", "tar -xf convoy-", "scripts/package.sh tries the archive"},
    {"", "ctest ", "runs tests"},
    {"CONTRIBUTING.md", "build/debug/bin/engine_test", "is a test"},
    {"tests/", "build/debug/bin/engine_test", "is a test"},
    {"tests/", "python3 -B tests/", "is a test"},
    {"tests/", "scripts/fault_schedules", "runs for minutes; a test runs 500 seeds", "fault_schedules"},
    {"emulator/", "emulator/bin/cuemu",
     "needs no build of Convoy; emulator/tests/cuemu_test.py runs these files"},
    {"docs/precision.md", "build/test/bin/engine_", "is a test"},
    {"docs/precision.md", "python3 tests/reference/op_db.py", "needs PyTorch"},
    {"tests/reference/README.md", "python3 tests/reference/generate.py", "needs PyTorch"},
    // What needs a GPU, another program, or hours.
    {"scripts/docker/", "", "needs a container engine"},
    {"scripts/arm64/", "", "compiles for minutes; a labelled test runs it", "package.arm64"},
    {"docs/launching.md", "kubectl ", "needs a cluster; a test checks the file", "LaunchRecipes"},
    {"docs/from-pytorch.md", "torchrun ", "needs PyTorch", "TorchLaunchers"},
    {"docs/from-pytorch.md", "python3 -m torch.", "needs PyTorch", "TorchLaunchers"},
    {"bench/results/", "", "made the figures of a certain machine"},
    {"", "convoy-bench-kernels --device cuda", "needs a GPU; a test has emulated ones", "KernelCounts"},
    {"bench/README.md", "convoy-bench-allreduce --devices 4 --device cuda",
     "needs GPUs; a test has emulated ones", "AllreduceOnGpus"},
    {"bench/README.md", "python3 bench/python/compare.py step", "needs PyTorch", "compare_test"},
    {"bench/README.md", "python3 /usr/share/benchmark/compare.py", "needs SciPy"},
    {"bench/README.md", "python3 bench/python/compare.py loader", "needs PyTorch", "compare_test"},
    {"bench/README.md", "python3 bench/python/measure_cpu.py", "takes hours; a test has fake programs",
     "measure_cpu_test"},
    {"", "mkdir -p build/cuda && tar ", "needs the archive of a GPU build"},
    {"", "scripts/pack_gpu_build.sh 90 ", "compiles for minutes, for a GPU"},
    {"tests/", "build/test/bin/hopper_convolution_bench", "counts for minutes; a test runs it with one image",
     "hopper_convolution_bench"},
    {"", "python3 scripts/many_gpus.py", "needs GPUs; a test has emulated ones", "many_gpus_test"},
    {"docs/many-gpus.md", "convoy-bench-", "needs eight GPUs"},
    {"", "scripts/validate_gpu.sh", "needs a GPU; a test has fake programs", "gpu_validation_test"},
    {"docs/learn.md", "", "needs no build of Convoy; learn/tests run these programs"},
    {"learn/", "", "needs no build of Convoy; learn/tests run these programs"},
    {"docs/own-network.md", "python3 bench/python/examples/", "needs PyTorch"},
    {"docs/reliability.md", "python3 bench/python/compare.py ", "needs PyTorch"},
    {"docs/batch-norm.md", "scripts/batch_norm_experiment.py",
     "trains 32 networks; a test has a fake program", "batch_norm_experiment_test"},
    {"docs/files.md", "convoy-train --dataset shapes --model resnet50", "writes 1 GB", "CheckpointSaver"},
    {"docs/determinism.md", "", "needs a build by the preset package; a labelled test makes one",
     "package.preset"},
    // What waits for a person, or needs a fault.
    {"docs/debugging.md", "mpirun ", "waits for a debugger"},
    {"docs/debugging.md", "gdb ", "attaches to a certain process"},
    {"", "gdb --args build/step/", "needs a build without optimization"},
    {"docs/tour.md", "gdb ", "waits for a person, and needs the debug build"},
    {"docs/reliability.md", "convoy-doctor --post-mortem", "needs a failed training", "PostMortem"},
};

}  // namespace

std::span<const Page> pages() { return kPages; }
std::span<const Exception> exceptions() { return kExceptions; }

const Exception* exception_for(const std::string& page, const std::string& command) {
  const std::string bare = command.substr(command.find(first_word(command)));
  for (const Exception& exception : kExceptions)
    if (page.starts_with(exception.page) && bare.starts_with(exception.begins)) return &exception;
  return nullptr;
}

std::vector<std::string> all_pages() {
  const fs::path root = testing::source_path();
  std::vector<std::string> found;
  for (auto entry = fs::recursive_directory_iterator(root); entry != fs::recursive_directory_iterator();
       ++entry) {
    const std::string name = fs::relative(entry->path(), root);
    if (name == "build" || name == "data" || name == "runs" || name == ".git" || name == ".cache")
      entry.disable_recursion_pending();
    else if (name.ends_with(".md") && name != "CHANGELOG.md")
      found.push_back(name);
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::vector<PageCommand> runnable_commands_of(const std::string& page) {
  const fs::path file = testing::source_path(page);
  std::vector<PageCommand> found = commands_of(file);
  for (const PageCommand& span : spans_of(file))
    if (is_complete(span.text)) found.push_back(span);
  std::erase_if(found,
                [&](const PageCommand& command) { return exception_for(page, command.text) != nullptr; });
  return found;
}

}  // namespace convoy::testing
