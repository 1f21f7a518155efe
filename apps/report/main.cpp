// convoy-report: turns the logs of runs into an HTML page.
#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "convoy/apps/common/signals.h"
#include "convoy/apps/flags/command_line.h"
#include "convoy/apps/flags/run_main.h"
#include "convoy/apps/report/page.h"
#include "convoy/engine/io/file.h"
#include "convoy/kernels/base/check.h"

namespace convoy::report {
namespace {

namespace fs = std::filesystem;

struct Options {
  std::vector<std::string> runs;
  std::string out;
  bool watch = false;
};

CommandLine command_line(Options& o) {
  CommandLine line("convoy-report",
                   "Turns the directories of one or more runs into a page that a browser opens.");
  line.add_positionals("RUN", o.runs,
                       "Directories of runs of convoy-train (--out), also with --repeat or --sweep");
  line.group("Output");
  line.add("out", &o.out, "HTML page, which needs no other file",
           {.value = "FILE", .default_text = "report.html of the first run"});
  line.add("watch", &o.watch, "Repeat while the runs are written; the page reloads itself",
           {.in_config = false});
  return line;
}

/// Returns the times at which the files of the runs were written.
std::vector<fs::file_time_type> times_of(const std::vector<RunDirectories>& directories) {
  std::vector<fs::file_time_type> times;
  std::error_code ignored;  // a file that is missing has the earliest time
  for (const auto& [directory, group] : directories)
    for (const char* name : {"log.jsonl", "evaluation.json", "trace.json"})
      times.push_back(fs::last_write_time(directory / name, ignored));
  return times;
}

/// Blocks until a file of the runs is written after `times`, or a signal comes.
void wait_for_change(const std::vector<std::string>& directories,
                     const std::vector<fs::file_time_type>& times) {
  constexpr auto kInterval = std::chrono::milliseconds(200);
  while (StopSignals::received() == 0) {
    if (times_of(directories_of_runs(directories)) != times) return;
    std::this_thread::sleep_for(kInterval);
  }
}

/// Prints warnings and the name of the page.
void print_summary(const Options& options, const std::vector<RunRecord>& runs) {
  for (const RunRecord& run : runs)
    for (const std::string& note : run.notes)
      fmt::print(stderr, "convoy-report: warning: {}: {}\n", run.directory.string(), note);
  fmt::print("page          {}\n", options.out);
  std::fflush(stdout);
}

int run(int argc, char** argv) {
  Options options;
  CommandLine line = command_line(options);
  if (!line.parse(argc, argv)) return 0;
  check(!options.runs.empty(), "no run: expected directories of runs, such as runs/resnet20-cifar10");
  if (options.out.empty()) options.out = (fs::path(options.runs.front()) / "report.html").string();
  check(*page_files::kD3 != '\0',
        "--out {}: this build has no D3, which draws the page; install node-d3 and build again", options.out);
  constexpr int kReloadSeconds = 5;
  const StopSignals signals(/*announces=*/false);
  bool printed = false;
  while (true) {
    const std::vector<RunDirectories> directories = directories_of_runs(options.runs);
    const std::vector<fs::file_time_type> times = times_of(directories);  // before the files are read
    const std::vector<RunRecord> runs = read_runs(directories);
    const bool is_complete =
        std::ranges::all_of(runs, [](const RunRecord& run) { return run.last("result") != nullptr; });
    const bool goes_on = options.watch && !is_complete && StopSignals::received() == 0;
    const fs::path place = fs::path(options.out).parent_path();
    std::error_code error;
    if (!place.empty()) fs::create_directories(place, error);
    if (error) fail<OutputError>("{}: {}", place.string(), error.message());
    io::write_file_atomically(options.out, make_page(runs, goes_on ? kReloadSeconds : 0));
    if (!std::exchange(printed, true)) print_summary(options, runs);
    if (!goes_on) break;
    wait_for_change(options.runs, times);
  }
  const int signal = StopSignals::received();
  return signal == 0 ? 0 : 128 + signal;
}

}  // namespace
}  // namespace convoy::report

int main(int argc, char** argv) {
  return convoy::run_main("convoy-report", [&] { return convoy::report::run(argc, argv); });
}
