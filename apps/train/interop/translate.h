// The configuration files of other trainers, as flags of convoy-train.
#pragma once

#include <string>
#include <vector>

#include "convoy/apps/train/interop/translation.h"
#include "convoy/apps/train/options.h"

namespace convoy::interop {

/// What a configuration file did.
struct Report {
  std::string taken;    // one line: the flags that it has set, and the keys that other flags override
  std::string ignored;  // one line: the keys without a flag; empty if there are none
};

/// Sets the flags of --deepspeed-config and --accelerate-config that `line` has not been given. Throws UsageError for
/// a file that cannot be read, an invalid value, and a setting that changes the result of a training in a way that
/// convoy-train does not have.
std::vector<Report> apply_foreign_configs(const TrainOptions& options, CommandLine& line);

/// Returns the number of ranks, from --devices or from the variables of the launcher.
std::int64_t rank_count(const TrainOptions& options);

/// Sets the flags for the keys of a DeepSpeed configuration: https://www.deepspeed.ai/docs/config-json.
void translate_deepspeed(const TrainOptions& options, Translation& file);
/// Sets --batch-size and --micro-batch-size for DeepSpeed's three sizes. With n ranks,
/// train_batch_size = train_micro_batch_size_per_gpu x gradient_accumulation_steps x n.
void translate_batch_sizes(const TrainOptions& options, Translation& file);
/// Sets --zero. Throws UsageError for stage 3, which also divides the parameters. `key`: that of the stage.
void translate_zero_stage(Translation& file, std::string_view key);

/// Sets the flags for the keys of a configuration that `accelerate config` has written. A DeepSpeed configuration that
/// it names is read too.
std::vector<Report> translate_accelerate(const TrainOptions& options, CommandLine& line, Translation& file);

/// Sets --micro-batch-size so that each rank computes a step in `accumulation` parts. `key`: that of the number.
void set_accumulation(const TrainOptions& options, Translation& file, std::int64_t accumulation,
                      std::string_view key);

}  // namespace convoy::interop
