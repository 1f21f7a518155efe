// What a run says about itself at its start and at its end.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "convoy/apps/train/setup.h"
#include "convoy/apps/train/trainer.h"

namespace convoy {

/// Returns the rows of the table that a run prints at its start.
std::vector<std::pair<std::string, std::string>> describe(const Setup& setup, std::int64_t total_steps,
                                                          const Job& job);

/// Returns the fields of the start event of a log.
nlohmann::ordered_json start_event(const Setup& setup, const Trainer& trainer, const Job& job);

/// Returns the fields of the result event, the last of a log. With --validation, those of the test images are
/// missing.
nlohmann::ordered_json result_event(const Setup& setup, const Trainer& trainer, const Job& job);
/// Prints the summary of a result and of the run directory `out`. `program` is the one that trains.
void print_result(const nlohmann::ordered_json& result, const std::string& out, const std::string& program);

}  // namespace convoy
