// RunRecord: what convoy-report reads from the directory of a run.
#pragma once

#include <cstddef>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace convoy::report {

using Json = nlohmann::ordered_json;

/// The files of a run.
struct RunRecord {
  std::filesystem::path directory;  // as it was given
  std::string name;                 // last part of the directory, which no other run of the report has
  std::string group;                // the directory of --repeat that the run belongs to; empty if to none
  std::vector<Json> events;         // of log.jsonl, in its order; the first one is a start event
  std::size_t damaged_lines = 0;    // of log.jsonl, which are no events
  Json evaluation;                  // evaluation.json, if its step is in the log; else null
  std::string mistakes_png;         // bytes of mistakes.png; empty if there is none
  std::string samples_png;          // bytes of samples.png; empty if there is none
  Json trace;                       // the events of the trace file; null if there is none
  std::vector<std::string> notes;   // problems that left something out

  /// Returns the latest event of a kind, or null.
  const Json* last(const std::string& event) const;
};

/// Reads a run. Throws DataError if it has no log.jsonl, or if that contains no start event. Other files may
/// be missing; a damaged one becomes a note. A line of the log that is being written is left out.
RunRecord read_run(const std::filesystem::path& directory);

/// The directory of a run, and that of --repeat which it belongs to, or an empty path.
struct RunDirectories {
  std::filesystem::path run, group;
};
/// Returns the directories of runs. A directory of --repeat, without a log of its own, becomes those of its
/// runs, OUT/seed-K, in the order of K; one of --sweep, those of its trainings that have begun, in the order of
/// OUT/sweep.json.
std::vector<RunDirectories> directories_of_runs(const std::vector<std::string>& directories);

/// Reads several runs, and names them by as many parts of their directories as they need to differ.
std::vector<RunRecord> read_runs(const std::vector<RunDirectories>& directories);

}  // namespace convoy::report
