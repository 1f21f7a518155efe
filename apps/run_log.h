// OUT/log.jsonl: one JSON object a line, each with "event". The schema has a number, in the start event.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string_view>

namespace convoy {

inline constexpr int kLogSchema = 1;

/// Events are appended whole, with one write each; a process that is killed leaves at most one cut line, at
/// the end. Numbers have as many digits as they need to be read back exactly.
class RunLog {
 public:
  /// Opens the log and keeps other runs from writing to it. An earlier log is cut back to what happened up to
  /// `resume_step`, and emptied where there is none. UsageError where another process has it open,
  /// OutputError where it cannot be written.
  RunLog(std::filesystem::path path, std::optional<std::int64_t> resume_step);
  ~RunLog();
  RunLog(const RunLog&) = delete;
  RunLog& operator=(const RunLog&) = delete;

  /// fields: a JSON object.
  void write(std::string_view event, const nlohmann::ordered_json& fields);

 private:
  void cut_back(std::int64_t step);

  std::filesystem::path path_;
  int descriptor_ = -1;
};

/// The result event of a finished run's log; nothing where there is none.
std::optional<nlohmann::ordered_json> read_result(const std::filesystem::path& log);

}  // namespace convoy
