// The trainings of --repeat: their seeds, their directories and the mean of their accuracies.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "convoy/apps/train/options/options.h"

namespace convoy {

/// The mean of several measurements, and how far it may be off.
struct MeanWithError {
  double mean = 0;
  double standard_deviation = 0;  // of one measurement, with n - 1 in the denominator
  double standard_error = 0;      // of the mean: the standard deviation over the square root of n
};
/// Returns the mean of at least two values.
MeanWithError mean_with_error(const std::vector<double>& values);

/// Throws UsageError for flags that contradict --repeat or --sweep. Accesses no files.
void check_repeat(const TrainOptions& options);

/// Returns the options of each training of --repeat: seeds from --seed on, and the directories OUT/seed-K.
/// Without --repeat, returns `options`, which must be resolved.
std::vector<TrainOptions> repetitions_of(const TrainOptions& options);

/// Throws UsageError if a training of `repetitions` exists already and --resume auto is not given, or if
/// their directory contains a training of its own. Throws OutputError if a directory cannot be used.
void check_repetitions(const TrainOptions& options, const std::vector<TrainOptions>& repetitions);

/// Returns "93.95% ± 0.04%" for a result of report_repetitions(), without the error for one training.
std::string percent_of(const nlohmann::ordered_json& summary);

/// Writes OUT/repeat.json with the results of the trainings of --repeat, which must be complete, and prints their mean
/// accuracy as one line. Returns the results by their names: values, mean and, for several trainings, standard
/// deviation and error. Throws OutputError if the file cannot be written.
nlohmann::ordered_json report_repetitions(const TrainOptions& options,
                                          const std::vector<TrainOptions>& repetitions);

}  // namespace convoy
