// The trainings of --sweep and --repeat: the combinations of the values of a sweep, the seeds, their directories and the
// tables of their results.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "convoy/apps/train/options/options.h"

namespace convoy {

/// Throws UsageError for flags that contradict --repeat or --sweep. Accesses no files.
void check_repeat(const TrainOptions& options);

/// Returns the options of each training of --repeat: seeds from --seed on, and the directories OUT/seed-K.
/// Without --repeat, returns `options`, which must be resolved.
std::vector<TrainOptions> repetitions_of(const TrainOptions& options);

/// Throws UsageError if a training of `repetitions` exists already and --resume auto is not given, or if
/// their directory contains a training of its own. Throws OutputError if a directory cannot be used.
void check_repetitions(const TrainOptions& options, const std::vector<TrainOptions>& repetitions);

/// Writes OUT/repeat.json with the results of the trainings of --repeat, which must be complete, and prints their mean
/// accuracy as one line. Returns the results by their names: values, mean and, for several trainings, standard
/// deviation and error. Throws OutputError if the file cannot be written.
nlohmann::ordered_json report_repetitions(const TrainOptions& options,
                                          const std::vector<TrainOptions>& repetitions);

/// A combination of the values of --sweep: {{"lr", "0.1"}, {"momentum", "0.9"}}.
using SweptValues = std::vector<std::pair<std::string, std::string>>;

/// A combination, and the training with it.
struct SweptTraining {
  SweptValues values;  // empty without --sweep
  TrainOptions options;
  int diverged = 0;  // trainings of its --repeat whose loss or parameters were not finite
};

/// Returns the combinations of "lr=0.1,0.2 momentum=0,0.9", the values of the last flag changing first.
/// Throws UsageError for another text, and for a flag that is no setting of one training. Does not parse the values.
std::vector<SweptValues> combinations_of(const std::string& sweep);
/// Returns "--lr 0.1 --momentum 0.9".
std::string flags_of(const SweptValues& values);
/// Returns the directory of a combination: "lr-0.1-momentum-0.9", with "_" for characters that such names should not have.
std::string directory_of(const SweptValues& values);

/// Writes OUT/sweep.json, which names the directories of the trainings. Given their results, in the form of
/// report_repetitions() and null for those that diverged, also writes these, prints a table, and writes the page
/// OUT/report.html. Throws UsageError if OUT is the directory of a training, and OutputError for a file that cannot be
/// written.
void write_sweep(const std::string& out, const std::vector<SweptTraining>& trainings,
                 const std::vector<nlohmann::ordered_json>* results = nullptr);

}  // namespace convoy
