#include "bench/step/pytorch.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "bench/step/temp_dir.h"
#include "convoy/apps/train/report/progress.h"
#include "convoy/kernels/base/check.h"

namespace convoy::bench {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int kCannotStart = 127;  // exit code of a shell for a command that cannot be started

struct Outcome {
  int code = kCannotStart;  // exit code, or 128 + signal number
  std::string out, err;
};

std::string read_all(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

/// Runs a program and blocks until it has ended. Its output goes to files, so it cannot block on a full pipe.
Outcome run_to_end(std::vector<std::string> words) {
  const TempDirectory directory;
  const std::string out = directory.path() / "out", err = directory.path() / "err";
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, out.c_str(), O_CREAT | O_WRONLY, 0600);
  posix_spawn_file_actions_addopen(&files, STDERR_FILENO, err.c_str(), O_CREAT | O_WRONLY, 0600);
  pid_t process = 0;
  const int problem = posix_spawnp(&process, words[0].c_str(), &files, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  if (problem != 0) return {.code = kCannotStart, .out = "", .err = std::strerror(problem)};
  int status = 0;
  while (waitpid(process, &status, 0) < 0 && errno == EINTR) {
  }
  return {.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
          .out = read_all(out),
          .err = read_all(err)};
}

std::string last_line(std::string text) {
  text.erase(text.find_last_not_of(" \n") + 1);
  return text.empty() ? "no output" : text.substr(text.rfind('\n') + 1);
}

fs::path own_directory() { return fs::read_symlink("/proc/self/exe").parent_path(); }

fs::path comparison_program() {
  for (fs::path directory = own_directory(); directory != directory.root_path();
       directory = directory.parent_path())
    if (fs::path file = directory / "bench" / "python" / "compare_step.py"; fs::exists(file)) return file;
  throw UsageError(
      fmt::format("--compare-pytorch: found no bench/python/compare_step.py in any directory above {}",
                  own_directory().string()));
}

std::vector<std::string> command_of(const StepOptions& options, const std::string& report) {
  const TrainOptions& training = options.training;
  const bool on_gpu = training.compute.device != "cpu";
  std::vector<std::string> words = {options.python, comparison_program(),
                                    "--python",     options.python,
                                    "--convoy",     own_directory() / "convoy-train",
                                    "--model",      training.model,
                                    "--image-size", fmt::format("{}", training.data.image_size),
                                    "--batch-size", fmt::format("{}", *training.batch_size),
                                    "--device",     on_gpu ? "cuda" : "cpu",
                                    "--precision",  training.precision,
                                    "--threads",    fmt::format("{}", training.compute.threads),
                                    "--rounds",     fmt::format("{}", options.rounds),
                                    "--json",       report};
  if (options.cold_start) {
    words.emplace_back("--cold-start");
  } else {
    const std::vector<std::string> windows = {"--steps", fmt::format("{}", *options.steps), "--warmup",
                                              fmt::format("{}", options.warmup)};
    words.insert(words.end(), windows.begin(), windows.end());
  }
  return words;
}

std::string fastest_of(const Json& comparison) {
  std::string fastest;
  double maximum = 0;
  for (const auto& [side, ratio] : comparison["ratios"].items())
    if (const double rate = comparison["sides"][side]["images_per_second"].get<double>(); rate > maximum) {
      maximum = rate;
      fastest = side;
    }
  return fastest;
}

/// Formats the memory ratio: of the devices' allocators on a GPU, of the processes on the CPU.
std::string format_memory(const Json& comparison, const std::string& side) {
  const Json& sides = comparison["sides"];
  if (const auto theirs = sides[side]["peak_bytes"].get<double>(); theirs > 0)
    return fmt::format("{:.2f} of PyTorch's", sides["convoy"]["peak_bytes"].get<double>() / theirs);
  const Json& ratios = comparison["memory_ratios"][side];
  if (!ratios.contains("whole")) return "not reported by PyTorch";
  return fmt::format("{:.2f} of PyTorch's process; {:.2f} without the libraries",
                     ratios["whole"].get<double>(), ratios["growth"].get<double>());
}

}  // namespace

std::string torch_version(const std::string& python) {
  const Outcome asked = run_to_end({python, "-c", "import torch; print(torch.__version__)"});
  check(asked.code == 0, "--python {}: found '{}', expected a Python interpreter with torch", python,
        last_line(asked.err));
  return last_line(asked.out);
}

Json compare_with_pytorch(const StepOptions& options) {
  const TempDirectory directory;
  const std::string report = directory.path() / "figures.json";
  const Outcome done = run_to_end(command_of(options, report));
  if (done.code != 0)
    throw Error(static_cast<ExitCode>(1),
                fmt::format("compare_step.py: exit code {}, {}", done.code, last_line(done.err)));
  Json comparison = Json::parse(read_all(report));
  if (options.cold_start) return comparison;
  comparison["fastest"] = fastest_of(comparison);
  if (comparison["fastest"].get<std::string>().empty()) {
    std::string why;
    for (const auto& [side, problem] : comparison["left_out"].items())
      why += fmt::format("{}{}: {}", why.empty() ? "" : "; ", side, problem.get<std::string>());
    throw Error(static_cast<ExitCode>(1), "PyTorch was not measured: " + why);
  }
  return comparison;
}

void print_comparison(const Json& comparison) {
  if (comparison.contains("seconds")) {
    const Json& seconds = comparison["seconds"];
    fmt::print("time to first step: {:.2f} s, PyTorch {:.2f} s, ratio {:.2f}\n",
               seconds["convoy"].get<double>(), seconds["pytorch"].get<double>(),
               comparison["ratio"].get<double>());
    return;
  }
  std::vector<std::pair<std::string, std::string>> rows;
  for (const auto& [side, figures] : comparison["sides"].items()) {
    const auto bytes = figures["peak_bytes"].get<std::size_t>();
    rows.emplace_back(side, fmt::format("{:.1f} images/s (minimum {:.1f}, maximum {:.1f}){}",
                                        figures["images_per_second"].get<double>(),
                                        figures["lowest"].get<double>(), figures["highest"].get<double>(),
                                        bytes > 0 ? ", peak memory " + format_bytes(bytes) : ""));
  }
  for (const auto& [side, why] : comparison["left_out"].items())
    rows.emplace_back(side, "not measured: " + why.get<std::string>());
  const auto fastest = comparison["fastest"].get<std::string>();
  const Json& ratio = comparison["ratios_by_round"][fastest];
  rows.emplace_back("ratio", fmt::format("{:.2f} times {} (minimum {:.2f}, maximum {:.2f} over rounds)",
                                         ratio["median"].get<double>(), fastest,
                                         ratio["lowest"].get<double>(), ratio["highest"].get<double>()));
  rows.emplace_back("memory", format_memory(comparison, fastest));
  print_table(rows);
}

}  // namespace convoy::bench
