// Reporter: writes the events of a training to its log and to the terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "convoy/apps/train/setup.h"
#include "convoy/apps/train/trainer.h"
#include "convoy/engine/io/file.h"
#include "convoy/engine/training/callback.h"

namespace convoy {

/// The version of the log's format, which the start event contains. docs/log.schema.json describes it.
inline constexpr int kLogSchema = 2;

/// The file log.jsonl of a run, one JSON object per line, each with the key "event", a time (UTC, ISO 8601)
/// and `elapsed`, the seconds since the training began, without the pauses between a stop and a resumption.
/// Each event is one write, so a killed process leaves at most one incomplete line, at the end. Numbers have
/// enough digits to be read back exactly.
class RunLog {
 public:
  /// Opens the log and locks it against other processes, if the file system can. Truncates an earlier log to
  /// the events up to `resume_step`, or to nothing if it is nullopt. `elapsed` continues from the last of
  /// these events, or from `elapsed_before` seconds if that is more. Throws UsageError if another process has
  /// locked the log, and OutputError if it cannot be written.
  RunLog(std::filesystem::path path, std::optional<std::int64_t> resume_step, double elapsed_before = 0);

  /// Returns whether the log is locked.
  bool is_locked() const { return is_locked_; }
  /// Appends an event. `fields` is a JSON object. Throws OutputError if the write fails.
  void write(std::string_view event, const nlohmann::ordered_json& fields);

 private:
  void truncate_to(std::int64_t step);

  std::filesystem::path path_;
  io::FileDescriptor file_;
  bool is_locked_ = false;
  double elapsed_before_;  // seconds, at opened_
  std::chrono::steady_clock::time_point opened_ = std::chrono::steady_clock::now();
};

/// Returns the result event of a log; nullopt if the run is not complete.
std::optional<nlohmann::ordered_json> read_result(const std::filesystem::path& log);

/// The work of a training whose duration is estimated.
struct WorkPlan {
  std::int64_t total_steps = 0;
  std::int64_t steps_per_evaluation = 0;  // 0: only the evaluation at the end
  double steps_of_evaluation = 0;  // its expected duration in steps, before the first one has been measured
  double final_evaluations =
      0;  // duration of what follows the last step besides its evaluation, in evaluations
};

/// Estimates the time until the end of a training from the means over all of its steps and evaluations so
/// far, so that the estimate does not jump. The first step, which takes longer, does not count.
class TimeLeft {
 public:
  using Clock = std::chrono::steady_clock;

  explicit TimeLeft(const WorkPlan& plan) : plan_(plan) {}

  /// Notes that `step` steps are complete at `now`. Ignores a step that is not the next one.
  void step(std::int64_t step, Clock::time_point now);
  /// Notes that the evaluation after the last noted step is complete at `now`.
  void evaluated(Clock::time_point now);
  /// Returns the estimate in seconds after the last noted step; nullopt before the second step.
  std::optional<double> seconds() const;

 private:
  using Seconds = std::chrono::duration<double>;

  /// Returns the number of evaluations that follow, including that of the last noted step if it is not
  /// complete.
  std::int64_t evaluations_left() const;

  WorkPlan plan_;
  std::int64_t first_step_ = -1, last_step_ = -1;  // -1: none
  Clock::time_point first_, last_;                 // when they were complete
  Seconds in_evaluations_{0};
  std::int64_t evaluations_ = 0;
  std::int64_t evaluated_step_ = -1;
};

/// Reports a training on rank 0: to the log, and to standard output as one line of progress that is redrawn
/// on a terminal, or one line per measured step in a file or pipe. Must outlive the training that calls it.
class Reporter final : public training::Callback {
 public:
  /// Opens the log as RunLog does. `setup` and `job` are those of `trainer`. The references must outlive the
  /// reporter.
  Reporter(const std::filesystem::path& log, std::optional<std::int64_t> resume_step, const Setup& setup,
           const Trainer& trainer, const Job& job);
  ~Reporter() override { clear(); }

  /// Returns the log, for the start and result events.
  RunLog& log() { return log_; }
  /// Prints a permanent line above the line of progress.
  void line(const std::string& text);

  void on_step(const training::StepResult& result) override;
  void on_epoch(const training::EpochResult& result) override;
  void on_evaluation(const training::EvaluationResult& result) override;
  void on_progress(std::int64_t step, double lr) override;
  void on_evaluation_progress(std::int64_t done, std::int64_t count) override;
  void on_save(const training::SavedCheckpoint& checkpoint) override;
  void on_warning(std::int64_t step, const std::string& text) override;
  void on_profile(const std::string& text) override { line(text); }
  void on_exception(std::int64_t step, const std::exception& error) override;

 private:
  using Clock = TimeLeft::Clock;
  static constexpr std::chrono::milliseconds kRedraw{100}, kPipeInterval{3000};

  /// Shows a line of progress after a step, unless the terminal has a new one already.
  void show(std::int64_t step, double lr, bool is_measured);
  void draw(const std::string& text);
  void clear();

  RunLog log_;
  const Trainer& trainer_;
  WorkPlan plan_;
  TimeLeft time_left_;
  std::string split_;  // the evaluated images, "test" or "validation"
  std::filesystem::path directory_;
  std::vector<std::string> classes_;
  bool quiet_;     // permanent lines only
  bool terminal_;  // the line of progress is redrawn
  bool drawn_ = false;
  Clock::time_point last_draw_;
  training::StepMeasurements last_;
  std::optional<training::EpochResult> last_epoch_;
  double accuracy_ = -1;  // of the latest evaluation; negative: none yet
};

}  // namespace convoy
