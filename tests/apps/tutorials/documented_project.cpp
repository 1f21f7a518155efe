#include "tests/apps/tutorials/documented_project.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>
#include <random>
#include <regex>

#include "tests/testing/source_tree/source_path.h"
#include "tests/testing/support/free_port.h"

namespace convoy::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// The last value of a flag counts. Without --out, a training computes one batch and writes nothing, or writes to a
// directory of its own, as on another day.
constexpr const char* kTraining = R"(#!/bin/sh
all=" $* "
case $all in
  " evaluate "* | " export "* | *" --summary "*) exec "$PROGRAMS/${0##*/}" "$@" ;;
esac
case $all in
  *" stripes "* | *" mnist "* | *-mnist.toml*) ;;
  *" folder "* | *-folder.toml*) set -- "$@" --image-size 32 ;;
  *" speedrun"* | *" vit "* | *" lenet "*) set -- "$@" --dataset cifar10 ;;
  *) set -- "$@" --dataset cifar10 --data data/cifar10 --image-size 8 ;;
esac
case $all in
  *" --micro-batch-size "*) ;;
  *) set -- "$@" --batch-size 16 ;;
esac
case $all in
  *" --max-steps "[0-9]" "* | *" --max-steps "[12][0-9]" "*) ;;
  *" --profile "*) set -- "$@" --max-steps 9 ;;
  *" --out "* | *" --repeat "*) set -- "$@" --max-steps 1 ;;
  *) set -- "$@" --dry-run ;;
esac
case $all in
  *" --out "*) ;;
  *) set -- "$@" --out "$NEW_RUN" ;;
esac
exec "$PROGRAMS/${0##*/}" "$@" --device cpu --threads 1 --workers 1
)";

constexpr const char* kBenchmark = R"(#!/bin/sh
name=${0##*/}
all=" $* "
case $name in
  convoy-bench-allreduce) set -- "$@" -b 8 -e 64K -n 2 -w 1 ;;
  convoy-bench-loader) set -- "$@" --epochs 1 ;;
  convoy-bench-step) set -- "$@" --batch-size 4 --image-size 8 --steps 1 --rounds 1 --warmup 1 --threads 1 ;;
  *) set -- "$@" --batch-size 1 --elements 4096 --benchmark_min_time=0.001 --benchmark_repetitions=1 --threads 1 ;;
esac
case $all in
  *" --benchmark_filter"*) ;;
  *" --count "*) set -- "$@" --benchmark_filter=^relu ;;
esac
exec "$PROGRAMS/$name" "$@"
)";

// Examples whose last argument is a number of steps or epochs.
constexpr const char* kExample = R"(#!/bin/sh
exec "$PROGRAMS/${0##*/}" "${1:-data/cifar10}" 1
)";

// In place of scripts/train.sh, which also installs packages and builds: its training.
constexpr const char* kTrainScript = R"(#!/bin/sh
case $# in
  0) set -- --out runs/speedrun-small-cifar10 ;;
esac
case " $* " in
  *" --model "*) ;;
  *) set -- --model speedrun-small "$@" ;;
esac
exec convoy-train --resume auto "$@"
)";

const std::pair<const char*, const char*> kStandIns[] = {{"convoy-train", kTraining},
                                                         {"custom_program", kTraining},
                                                         {"vision_transformer", kTraining},
                                                         {"convoy-bench-allreduce", kBenchmark},
                                                         {"convoy-bench-kernels", kBenchmark},
                                                         {"convoy-bench-loader", kBenchmark},
                                                         {"convoy-bench-step", kBenchmark},
                                                         {"custom_op_benchmark", kBenchmark},
                                                         {"callbacks", kExample},
                                                         {"minimal_cifar10", kExample},
                                                         {"minimal_cifar10_ranks", kExample}};

/// Writes 60 images of noise in the class directories of CIFAR-10.
void write_cifar10(const fs::path& directory) {
  const char* names[] = {"airplane", "automobile", "bird",  "cat",  "deer",
                         "dog",      "frog",       "horse", "ship", "truck"};
  std::mt19937 random(1);
  for (int image = 0; image < 60; ++image) {
    const fs::path place = directory / (image < 40 ? "train" : "test") / names[image % 10];
    fs::create_directories(place);
    std::string bytes = solid_bmp(32, 32, 0, 0, 0);
    for (std::size_t i = bytes.size() - 3 * 32 * 32; i < bytes.size(); ++i)
      bytes[i] = static_cast<char>(random());
    std::ofstream(place / (std::to_string(image) + ".bmp"), std::ios::binary) << bytes;
  }
}

/// Hosts of pages, which this machine replaces with fewer ranks.
const std::pair<std::regex, const char*> kReplaced[] = {
    {std::regex("-n 8 --host node1:4,node2:4 "), "-n 4 --host localhost:4 "}};

/// Returns the number of ranks that a command starts.
int ranks_of(const std::string& command) {
  static const std::regex kCount("(?:-n|--ranks|--nproc-per-node|--devices|slots=) ?([0-9]+)");
  std::smatch match;
  if (command.starts_with("for R in 0 1;")) return 2;
  if (command.find("--hostfile") != std::string::npos) return 2;
  return std::regex_search(command, match, kCount) ? std::stoi(match[1]) : 1;
}

}  // namespace

DocumentedProject::DocumentedProject() {
  const fs::path source = testing::source_path(), programs = fs::path(program("convoy-train")).parent_path();
  for (const auto& [name, text] : kStandIns) write_script(std::string("bin/") + name, text);
  for (const fs::directory_entry& entry : fs::directory_iterator(programs)) {
    const std::string name = entry.path().filename();
    if (!name.ends_with("_test") && !fs::exists(path("bin/" + name)))
      fs::create_symlink(entry.path(), path("bin/" + name));
  }
  fs::create_symlink(CONVOY_MPIRUN, path("bin/mpirun"));
  for (const char* build : {"debug", "release", "test"}) {
    fs::create_directories(path(std::string("build/") + build));
    fs::create_symlink(path("bin"), path(std::string("build/") + build + "/bin"));
  }
  // Commands of pages write pictures to docs/.
  fs::copy(source / "docs", path("docs"), fs::copy_options::recursive);
  write_script("scripts/train.sh", kTrainScript);
  for (const fs::directory_entry& entry : fs::directory_iterator(source / "scripts"))
    if (const fs::path to = path("scripts") / entry.path().filename(); !fs::exists(to))
      fs::create_symlink(entry.path(), to);
  for (const fs::directory_entry& entry : fs::directory_iterator(source))
    if (const std::string name = entry.path().filename();
        !fs::exists(path(name)) && name != "data" && name != "runs")
      fs::create_symlink(entry.path(), path(name));

  write_digits(path("data/mnist"));
  write_cifar10(path("data/cifar10"));
  fs::create_directories(path("path/to"));
  fs::create_symlink(path("data/cifar10"), path("path/to/cifar10"));
  write_color_directories(path("data/flowers"), 32, 4);
  for (const char* part : {"train", "test"}) {
    const fs::path classes = path("data/flowers") / part;
    fs::rename(classes / "red", classes / "rose");  // a class of the pages
  }
  fs::copy(path("data/flowers"), path("data/photos"), fs::copy_options::recursive);
  fs::copy(path("data/flowers"), path("my-images"), fs::copy_options::recursive);
  const fs::path image = fs::directory_iterator(path("my-images/test/rose"))->path();
  fs::create_directory(path("more-photos"));
  fs::copy(image, path("photo.jpg"));
  fs::copy(image, path("more-photos"));

  environment = mpirun_environment(directory_);
  environment["PROGRAMS"] = programs;
  environment["PATH"] = path("bin").string() + ":" + std::getenv("PATH");
  environment["CONVOY_DATA"] = "";  // the pages name no directory, so data/ is found without it
}

void DocumentedProject::write_script(const std::string& name, const std::string& text) const {
  ::chmod(directory_.write(name, text).c_str(), 0755);
}

bool DocumentedProject::has_programs_of(const std::string& command) const {
  for (const char* name : {"convoy-bench-kernels", "custom_op_benchmark", "convoy-report"})
    if (command.find(name) != std::string::npos && !fs::exists(program(name))) return false;
  return true;
}

ProcessResult DocumentedProject::run(const std::string& command) const {
  Environment all = environment;
  all["NEW_RUN"] = "runs/" + std::to_string(++runs_);
  // Another program may use the port of the page, or the default of torchrun.
  const std::string port = std::to_string(free_port());
  all["PET_MASTER_PORT"] = port;
  const std::string here =
      std::regex_replace(command, std::regex("\\bMASTER_PORT=29500\\b"), "MASTER_PORT=" + port);
  return run_program({"/bin/bash", "-c", here}, {.environment = all, .directory = directory_.path()});
}

ProcessResult DocumentedProject::expect_success(const std::string& command) const {
  static const std::regex kComment(" +# .*");
  std::string here = std::regex_replace(command, kComment, "");
  for (const auto& [name, by] : kReplaced) here = std::regex_replace(here, name, by);
  ProcessResult result = run(here);
  EXPECT_EQ(result.exit_code, 0) << command << "\n" << result.out << result.err;
  static const std::regex kTrains("convoy-train|scripts/train.sh|custom_program --|vision_transformer --");
  static const std::regex kNoTraining("--summary|> c\\.toml$|--version");
  if (std::regex_search(here, kTrains) && !std::regex_search(here, kNoTraining)) {
    EXPECT_THAT(result.out, ::testing::AnyOf(HasSubstr("dry run: the loss of one batch is "),
                                             HasSubstr("test accuracy  ")))
        << command;
    if (const int ranks = ranks_of(here); ranks > 1) {
      EXPECT_THAT(result.out, HasSubstr("ranks      " + std::to_string(ranks) + " ")) << command;
    }
  }
  return result;
}

}  // namespace convoy::testing
