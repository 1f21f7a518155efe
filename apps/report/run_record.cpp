#include "convoy/apps/report/run_record.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <sstream>

#include "convoy/apps/common/text.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/json_text.h"

namespace convoy::report {
namespace {

namespace fs = std::filesystem;

/// Returns the contents of a file; empty if it cannot be read.
std::string read_bytes(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return "";
  std::ostringstream bytes;
  bytes << std::ifstream(path, std::ios::binary).rdbuf();
  return bytes.str();
}

/// Returns "; runs below it: A, B" for a directory that has some; else "".
std::string runs_below(const fs::path& directory) {
  std::set<std::string> runs;
  std::error_code error, ignored;
  fs::recursive_directory_iterator entry(directory, fs::directory_options::skip_permission_denied, error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    if (!fs::is_regular_file(entry->path() / "log.jsonl", ignored)) continue;
    runs.insert(entry->path().string());
    entry.disable_recursion_pending();
  }
  return runs.empty() ? "" : fmt::format("; runs below it: {}", fmt::join(runs, ", "));
}

void read_log(RunRecord& run) {
  if (std::error_code ignored; fs::is_regular_file(run.directory, ignored)) {
    const fs::path parent = fs::absolute(run.directory).parent_path();
    fail<DataError>(
        "{}: a file, expected the directory of a run of convoy-train{}", run.directory.string(),
        fs::exists(parent / "log.jsonl", ignored) ? fmt::format("; did you mean {}?", parent.string()) : "");
  }
  const fs::path path = run.directory / "log.jsonl";
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::error_code ignored;
  if (!file || fs::is_directory(path, ignored)) {
    const int reason = errno == 0 ? EISDIR : errno;
    fail<DataError>("{}: {}; expected the directory of a run of convoy-train{}", path.string(),
                    std::strerror(reason), runs_below(run.directory));
  }
  for (std::string line; std::getline(file, line);) {
    if (file.eof()) break;  // a line without its end, which is being written
    Json event = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (event.is_object() && event.contains("event") && event["event"].is_string())
      run.events.push_back(std::move(event));
    else
      ++run.damaged_lines;
  }
  const auto start =
      std::ranges::find_if(run.events, [](const Json& event) { return event["event"] == "start"; });
  if (start == run.events.end())
    fail<DataError>("{}: found no start event, expected the log of convoy-train{}", path.string(),
                    run.damaged_lines > 0 ? fmt::format(" ({} damaged lines)", run.damaged_lines) : "");
  run.damaged_lines += static_cast<std::size_t>(start - run.events.begin());
  run.events.erase(run.events.begin(), start);
  if (run.damaged_lines > 0)
    run.notes.push_back(fmt::format("log.jsonl: {} damaged lines are left out", run.damaged_lines));
}

/// Returns whether the contents of evaluation.json have the fields and sizes that docs/files.md describes.
bool is_evaluation(const Json& json) try {
  const std::size_t classes = json.at("classes").get<std::vector<std::string>>().size();
  const auto are = [](const Json& list, const auto& is_valid) {
    return list.is_array() && std::all_of(list.begin(), list.end(), is_valid);
  };
  const auto is_number = [](const Json& value) { return value.is_number(); };
  const auto is_class = [&](const Json& value) { return value.is_number_unsigned() && value < classes; };
  const auto is_row = [&](const Json& row) { return are(row, is_number) && row.size() == classes; };
  const auto is_mistake = [&](const Json& mistake) {
    return is_number(mistake.at("image")) && is_number(mistake.at("probability")) &&
           mistake.value("file", Json("")).is_string() && is_class(mistake.at("label")) &&
           is_class(mistake.at("prediction"));
  };
  const Json& confusion = json.at("confusion");
  return is_number(json.at("step")) && is_row(json.at("images")) && is_row(json.at("correct")) &&
         are(confusion, is_row) && (confusion.empty() || confusion.size() == classes) &&
         are(json.at("mistakes"), is_mistake) && json.at("mistakes_per_row").is_number_unsigned() &&
         json.at("mistakes_per_row") > 0;
} catch (const Json::exception&) {
  return false;
}

/// Reads evaluation.json, unless it belongs to steps that a resumed training has not repeated yet.
void read_evaluation(RunRecord& run) {
  const std::string text = read_bytes(run.directory / "evaluation.json");
  if (text.empty()) return;
  Json evaluation = Json::parse(text, nullptr, false);
  if (!is_evaluation(evaluation)) {
    run.notes.emplace_back("evaluation.json: damaged, and left out");
    return;
  }
  const bool is_in_log = std::ranges::any_of(run.events, [&](const Json& event) {
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
  return config.is_object() ? fs::path(path_at(config, "trace")) : fs::path();
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

/// Returns the number in the name seed-K of a run of --repeat; nullopt for other names.
std::optional<std::int64_t> seed_of(const fs::path& run) {
  const std::string name = run.filename().string();
  const std::string prefix = "seed-";
  return name.starts_with(prefix) ? number_in<std::int64_t>(name.substr(prefix.size())) : std::nullopt;
}

/// Returns the directories of the trainings of --sweep, by OUT/sweep.json; none if there is no such file.
std::vector<std::string> swept_trainings_of(const fs::path& out) {
  std::vector<std::string> found;
  const Json sweep = Json::parse(read_bytes(out / "sweep.json"), nullptr, /*allow_exceptions=*/false);
  for (const Json& each : sweep.is_object() ? sweep.value("trainings", Json()) : Json())
    if (const Json name = each.is_object() ? each.value("directory", Json()) : Json(); name.is_string())
      if (const fs::path last = fs::path(name.get<std::string>()).filename();
          !last.empty() && last.string()[0] != '.')
        found.push_back((out / last).string());
  return found;
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
  run.samples_png = read_bytes(directory / "samples.png");
  return run;
}

std::vector<RunDirectories> directories_of_runs(const std::vector<std::string>& directories) {
  std::vector<RunDirectories> all;
  for (const fs::path directory : directories) {
    std::map<std::int64_t, fs::path> seeds;
    std::error_code ignored;
    if (!fs::exists(directory / "log.jsonl", ignored)) {
      const std::size_t before = all.size();
      for (const RunDirectories& each : directories_of_runs(swept_trainings_of(directory)))
        if (fs::exists(each.run / "log.jsonl", ignored)) all.push_back(each);
      if (all.size() > before) continue;
      for (const fs::directory_entry& entry : fs::directory_iterator(directory, ignored))
        if (const auto seed = seed_of(entry.path()); seed && fs::exists(entry.path() / "log.jsonl", ignored))
          seeds[*seed] = entry.path();
    }
    for (const auto& [seed, run] : seeds) all.push_back({.run = run, .group = directory});
    if (seeds.empty()) all.push_back({.run = directory, .group = {}});
  }
  return all;
}

std::vector<RunRecord> read_runs(const std::vector<RunDirectories>& directories) {
  std::vector<RunRecord> runs;
  for (const auto& [directory, group] : directories) {
    runs.push_back(read_run(directory));
    runs.back().group = group.string();
  }
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
