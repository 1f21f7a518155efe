// RunLog: the file log.jsonl of a run, one JSON object per line, each with the key "event".
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string_view>

namespace convoy {

/// The version of the log's format, which the start event contains. docs/log.schema.json describes it.
inline constexpr int kLogSchema = 2;

/// Appends events to a log. Each event has a time (UTC, ISO 8601) and `elapsed`, the seconds since the training
/// began, without the pauses between a stop and a resumption. Each event is one write, so a killed process leaves
/// at most one incomplete line, at the end. Numbers have enough digits to be read back exactly.
class RunLog {
 public:
  /// Opens the log and locks it against other processes, if the file system can. Truncates an earlier log to the events up to
  /// `resume_step`, or to nothing if it is nullopt. `elapsed` continues from the last of these events, or from
  /// `elapsed_before` seconds if that is more. Throws UsageError if another process has locked the log, and
  /// OutputError if it cannot be written.
  RunLog(std::filesystem::path path, std::optional<std::int64_t> resume_step, double elapsed_before = 0);
  ~RunLog();
  RunLog(const RunLog&) = delete;
  RunLog& operator=(const RunLog&) = delete;

  /// Returns whether the log is locked.
  bool is_locked() const { return is_locked_; }
  /// Appends an event. `fields` is a JSON object. Throws OutputError if the write fails.
  void write(std::string_view event, const nlohmann::ordered_json& fields);

 private:
  void truncate_to(std::int64_t step);

  std::filesystem::path path_;
  int descriptor_ = -1;
  bool is_locked_ = false;
  double elapsed_before_;  // seconds, at opened_
  std::chrono::steady_clock::time_point opened_ = std::chrono::steady_clock::now();
};

/// Returns the result event of a log; nullopt if the run is not complete.
std::optional<nlohmann::ordered_json> read_result(const std::filesystem::path& log);

}  // namespace convoy
