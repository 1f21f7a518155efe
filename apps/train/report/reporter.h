// Reporter: writes the events of a training to its log and to the terminal.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "convoy/apps/train/report/progress.h"
#include "convoy/apps/train/report/run_log.h"
#include "convoy/apps/train/setup.h"
#include "convoy/apps/train/trainer.h"

namespace convoy {

/// Reports the events of a training on rank 0. Must outlive the training that uses its callbacks.
class Reporter {
 public:
  /// Opens the log as RunLog does. `setup` and `job` are those of `trainer`.
  Reporter(const std::filesystem::path& log, std::optional<std::int64_t> resume_step, const Setup& setup,
           const Trainer& trainer, const Job& job);

  /// Writes the start event, and warns if the log is not locked.
  void start(const Setup& setup, const Trainer& trainer, const Job& job);
  /// Writes and prints a warning.
  void warn(const std::string& text, std::int64_t step);
  /// Returns the callbacks for Trainer::run().
  TrainerCallbacks callbacks();
  /// Prints that a signal has stopped the training.
  void stopped(int signal, std::int64_t step);
  /// Writes the result event, the last of a log.
  void result(const nlohmann::ordered_json& result);

 private:
  void on_step(const StepReport& report);
  void on_epoch(const training::EpochResult& report);
  void on_evaluation(std::int64_t step, const Evaluation& evaluation, bool is_best);

  RunLog log_;
  std::string split_;  // the evaluated images, "test" or "validation"
  Progress progress_;
  std::filesystem::path directory_;
  std::vector<std::string> classes_;
  std::int64_t steps_per_epoch_;
  std::int64_t steps_per_evaluation_;  // 0: at the end only
  std::int64_t total_steps_;
  std::optional<training::EpochResult> last_epoch_;
};

/// Returns the fields of the result event. With --validation, those of the test images are missing.
nlohmann::ordered_json result_of(const Setup& setup, const Trainer& trainer, const Job& job);
/// Prints the summary of a result and of the run directory `out`. `program` is the one that trains.
void print_result(const nlohmann::ordered_json& result, const std::string& out, const std::string& program);

}  // namespace convoy
