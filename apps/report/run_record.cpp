#include "convoy/apps/report/run_record.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <set>

#include "convoy/kernels/base/check.h"

namespace convoy::report {
namespace {

namespace fs = std::filesystem;

/// Returns the contents of a file; empty if it cannot be read.
std::string read_bytes(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return "";
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Returns whether a line of a log is an event that the report can use.
bool is_event(const Json& line) {
  return line.is_object() && line.contains("event") && line["event"].is_string();
}

void read_log(RunRecord& run) {
  const fs::path path = run.directory / "log.jsonl";
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::error_code ignored;
  if (!file || fs::is_directory(path, ignored))
    fail<DataError>("{}: {}; expected the directory of a run of convoy-train", path.string(),
                    std::strerror(errno == 0 ? EISDIR : errno));
  for (std::string line; std::getline(file, line);) {
    if (file.eof()) break;  // a line without its end, which is being written
    Json event = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (is_event(event))
      run.events.push_back(std::move(event));
    else
      ++run.damaged_lines;
  }
  const auto start = std::find_if(run.events.begin(), run.events.end(),
                                  [](const Json& event) { return event["event"] == "start"; });
  if (start == run.events.end())
    fail<DataError>("{}: found no start event, expected the log of convoy-train{}", path.string(),
                    run.damaged_lines > 0 ? fmt::format(" ({} damaged lines)", run.damaged_lines) : "");
  run.damaged_lines += static_cast<std::size_t>(start - run.events.begin());
  run.events.erase(run.events.begin(), start);
  if (run.damaged_lines > 0)
    run.notes.push_back(fmt::format("log.jsonl: {} damaged lines are left out", run.damaged_lines));
}

/// Reads evaluation.json, unless it belongs to steps that a resumed training has not repeated yet.
void read_evaluation(RunRecord& run) {
  const std::string text = read_bytes(run.directory / "evaluation.json");
  if (text.empty()) return;
  Json evaluation = Json::parse(text, nullptr, false);
  if (!evaluation.is_object() || !evaluation.contains("step") || !evaluation.contains("classes")) {
    run.notes.emplace_back("evaluation.json: damaged, and left out");
    return;
  }
  const bool is_in_log = std::any_of(run.events.begin(), run.events.end(), [&](const Json& event) {
    return event["event"] == "eval" && event.value("step", Json()) == evaluation["step"];
  });
  if (!is_in_log) return;
  run.evaluation = std::move(evaluation);
  run.mistakes_png = read_bytes(run.directory / "mistakes.png");
}

/// Returns the trace file of a run: RUN/trace.json, or the file of --trace.
fs::path trace_file(const RunRecord& run) {
  const Json config = run.last("start")->value("config", Json::object());
  std::error_code ignored;
  if (const fs::path own = run.directory / "trace.json"; fs::exists(own, ignored)) return own;
  const Json named = config.is_object() ? config.value("trace", Json()) : Json();
  return named.is_string() ? fs::path(named.get<std::string>()) : fs::path();
}

void read_trace(RunRecord& run) {
  const fs::path path = trace_file(run);
  const std::string text = path.empty() ? "" : read_bytes(path);
  if (text.empty()) return;
  Json trace = Json::parse(text, nullptr, false);
  if (trace.is_object() && trace.contains("traceEvents") && trace["traceEvents"].is_array())
    run.trace = std::move(trace["traceEvents"]);
  else
    run.notes.push_back(fmt::format("{}: not a trace of convoy-train, and left out", path.string()));
}

/// Returns the last `parts` parts of a path: "b/c" of "a/b/c" for 2.
std::string tail_of(const fs::path& path, int parts) {
  fs::path normal = fs::absolute(path).lexically_normal();
  if (!normal.has_filename()) normal = normal.parent_path();  // a trailing slash
  fs::path tail;
  for (int i = 0; i < parts && normal.has_relative_path(); ++i, normal = normal.parent_path())
    tail = tail.empty() ? normal.filename() : normal.filename() / tail;
  return tail.string();
}

}  // namespace

const Json* RunRecord::last(const std::string& event) const {
  const auto found =
      std::find_if(events.rbegin(), events.rend(), [&](const Json& each) { return each["event"] == event; });
  return found == events.rend() ? nullptr : &*found;
}

RunRecord read_run(const fs::path& directory) {
  RunRecord run{.directory = directory, .name = tail_of(directory, 1)};
  read_log(run);
  read_evaluation(run);
  read_trace(run);
  return run;
}

std::vector<RunRecord> read_runs(const std::vector<std::string>& directories) {
  std::vector<RunRecord> runs;
  for (const std::string& directory : directories) runs.push_back(read_run(directory));
  constexpr int kMaxParts = 32;
  for (int parts = 2; parts <= kMaxParts; ++parts) {
    std::set<std::string> names;
    for (const RunRecord& run : runs) names.insert(run.name);
    if (names.size() == runs.size()) break;
    for (RunRecord& run : runs) run.name = tail_of(run.directory, parts);
  }
  return runs;
}

}  // namespace convoy::report
