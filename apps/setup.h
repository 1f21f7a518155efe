// Everything that is settled before the first step: flags, device, data, model.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "apps/data_source.h"
#include "apps/job.h"
#include "apps/train_options.h"
#include "datasets/transforms.h"
#include "models/model.h"

namespace convoy {

struct Setup {
  const TrainOptions& options;  // resolved
  std::string config;           // every flag as it was resolved, as TOML
  Device device;
  DataSet data;
  Model model;
  TransformSpec transform;
  std::vector<std::string> warnings;
};

/// The network of --model in the types of --precision, from --init-from where that names a file.
Model make_model(const TrainOptions& options, const DataSet& data, const Device& device);

/// Reads the data, once for all ranks of this process, and builds the model.
Setup set_up(TrainOptions& options, const CommandLine& line, Device device, const DataLocation& location,
             Job& job);

/// The table at the start of a run.
std::vector<std::pair<std::string, std::string>> describe(const Setup& setup, std::int64_t total_steps,
                                                          const Job& job);

/// --summary: the model's layers. Of data sets whose images have a known size, nothing is read.
std::string summarize(const TrainOptions& options);

/// `flag = value` lines by flag.
std::map<std::string, std::string> flags_by_name(const std::string& config);

}  // namespace convoy
