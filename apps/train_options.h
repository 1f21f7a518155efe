// The flags of convoy-train.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "apps/command_line.h"
#include "apps/compute.h"
#include "apps/data_source.h"
#include "apps/job.h"
#include "engine/optim/loss_scaler.h"

namespace convoy {

/// Optionals take their default from the recipe of the model, data set and optimizer; resolve_recipe() fills
/// them.
struct TrainOptions {
  std::string model = "resnet20";
  std::string stem = "auto";
  std::string init_from;
  DataOptions data;
  std::optional<std::string> augment;
  bool overfit_batch = false;

  std::optional<std::int64_t> epochs;  // 0: as many as --max-steps needs
  std::int64_t max_steps = 0;          // 0: no limit
  std::optional<std::int64_t> batch_size;
  std::int64_t micro_batch_size = 0;  // 0: the whole batch at once
  std::string optimizer = "sgd";
  std::optional<double> lr;
  std::optional<double> momentum;
  std::optional<bool> nesterov;
  std::optional<double> weight_decay;
  std::optional<double> label_smoothing;
  double clip_norm = 0;  // 0: no clipping
  std::optional<std::string> schedule;
  std::optional<double> warmup;  // share of the steps
  std::int64_t seed = 1;

  ComputeOptions compute;
  std::string precision = "fp32";
  std::string loss_scale = "dynamic";  // or a number

  JobOptions job;
  double bucket_mb = 10;                  // MiB
  std::optional<std::string> grad_dtype;  // none: as they are computed
  std::int64_t zero = 0;                  // what is divided over the ranks
  bool sync_bn = false;
  std::string bn_buffers = "local";  // or mean
  std::int64_t check_replicas = 0;   // steps; 0: at the end alone

  std::optional<std::string> out;
  std::string resume;                      // "auto", or a checkpoint's folder, or a run's
  std::optional<std::int64_t> save_every;  // steps; 0: at the end of each epoch
  std::int64_t keep_last = 3;
  bool keep_best = true;
  std::optional<std::int64_t> eval_every;  // epochs; 0: at the end alone
  std::int64_t log_every = 20;             // steps
  std::string trace;

  // Actions, which are no part of a run's configuration.
  std::string config;
  bool print_config = false;
  bool dry_run = false;
  bool summary = false;
};

/// The table of flags over `options`, which must outlive it.
CommandLine train_command_line(TrainOptions& options);

/// Fills what depends on other flags, from the recipes that docs and --help name.
void resolve_recipe(TrainOptions& options);

/// What --loss-scale asks for. UsageError for what is neither "dynamic" nor a number of at least 1.
LossScaleSettings loss_scale_settings(const TrainOptions& options);

/// UsageError for flags that contradict each other: before any file is touched.
void check_consistency(const TrainOptions& options, const CommandLine& line);

}  // namespace convoy
