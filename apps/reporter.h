// What happens in a training, written to its log and shown.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "apps/progress.h"
#include "apps/run_log.h"
#include "apps/setup.h"
#include "apps/trainer.h"

namespace convoy {

/// The log and the progress must outlive it, and it the training.
class Reporter {
 public:
  Reporter(RunLog& log, Progress& progress) : log_(log), progress_(progress) {}

  void start(const Setup& setup, const Trainer& trainer, const Job& job);
  void warn(const std::string& text, std::int64_t step);
  TrainerCallbacks callbacks();
  void result(const nlohmann::ordered_json& result);

 private:
  void on_step(const StepReport& report);
  void on_evaluation(std::int64_t step, const Evaluation& evaluation, bool is_best);

  RunLog& log_;
  Progress& progress_;
};

/// The fields of the result event, and the summary that a person sees.
nlohmann::ordered_json result_of(const Setup& setup, const Trainer& trainer, const Job& job);
void print_result(const nlohmann::ordered_json& result, const std::string& out);

}  // namespace convoy
