// --deepspeed-config: the keys of a DeepSpeed configuration as flags of convoy-train
// (https://www.deepspeed.ai/docs/config-json; docs/from-pytorch.md has the table).
#pragma once

#include <string>

#include "convoy/apps/train/options.h"

namespace convoy {

/// What a configuration file did.
struct DeepSpeedReport {
  std::string taken;    // one line: the flags that it has set, and the keys that other flags override
  std::string ignored;  // one line: the keys without a flag; empty if there are none
};

/// Sets the flags of the file --deepspeed-config that `line` has not been given; `line` must be that of
/// `options`. Throws UsageError for a file that cannot be read, an invalid value, and a setting that changes
/// the result of a training in a way that convoy-train does not have.
DeepSpeedReport apply_deepspeed_config(const TrainOptions& options, CommandLine& line);

}  // namespace convoy
