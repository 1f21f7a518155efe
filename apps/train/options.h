// The flags of convoy-train.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "convoy/apps/common/command_line.h"
#include "convoy/apps/common/compute.h"
#include "convoy/apps/common/data_source.h"
#include "convoy/apps/ranks/job.h"
#include "convoy/apps/train/augmentation/augmentation_options.h"
#include "convoy/engine/optim/loss_scaler.h"

namespace convoy {

/// The values of all flags of convoy-train. resolve_recipe() sets the optionals that have no value, by model,
/// data set and optimizer.
struct TrainOptions {
  std::string model = "resnet20";
  std::string stem = "auto";        // set_up() resolves it for models that have several
  std::string activation = "auto";  // set_up() resolves it for models that have several
  bool activation_checkpointing = false;
  std::string init_from;  // a safetensors file, a checkpoint or a run
  DataOptions data;
  std::optional<std::string> augment;
  AugmentationOptions augmentation;
  bool overfit_batch = false;
  double hardest = 1;     // fraction of a batch; 1: all samples
  std::string selection;  // the directory of a run with `hardest`

  std::optional<std::int64_t> epochs;  // 0: until --max-steps
  std::int64_t max_steps = 0;          // 0: no limit
  std::optional<std::int64_t> batch_size;
  std::int64_t micro_batch_size = 0;  // 0: the whole batch at once
  std::optional<std::string> optimizer;
  std::optional<double> lr;
  std::optional<double> bias_lr;  // nullopt: that of their weights
  // Only with muon.
  std::optional<double> sgd_lr;
  std::optional<double> sgd_momentum;
  std::optional<std::int64_t> ns_steps;
  std::optional<bool> normalize_filters;

  // Only with adam, adamw and lamb.
  std::optional<std::string> adam_betas;  // two numbers with a comma
  std::optional<double> adam_eps;
  std::optional<double> trust_coefficient;  // only with lars

  std::optional<double> momentum;
  std::optional<bool> nesterov;
  std::optional<double> weight_decay;
  std::optional<bool> decay_biases;
  std::optional<double> label_smoothing;
  std::optional<std::string> loss_reduction;
  double clip_norm = 0;  // 0: no clipping
  std::optional<std::string> schedule;
  std::optional<TrainingLength> warmup;
  double min_lr = 0;
  std::optional<std::string> milestones;         // only with step
  std::optional<double> gamma;                   // only with step, exponential and plateau
  std::optional<std::int64_t> plateau_patience;  // losses; only with plateau
  std::optional<double> plateau_threshold;       // only with plateau
  std::optional<double> power;                   // only with polynomial
  std::string lr_rule = "none";                  // or linear, sqrt
  std::optional<std::int64_t> lr_base_batch;     // samples; only with a rule
  std::optional<std::string> freeze;
  std::string lr_for = "none";
  double ema = 0;                         // decay; 0: no average
  std::int64_t lookahead = 0;             // steps; 0: none
  std::optional<double> lookahead_alpha;  // only with lookahead
  std::int64_t seed = 1;
  std::int64_t repeat = 1;  // trainings, with seeds from `seed` on

  ComputeOptions compute;
  std::string precision = "fp32";
  std::string loss_scale = "dynamic";  // or a number

  JobOptions job;
  double bucket_mb = 10;                  // MiB
  std::optional<std::string> grad_dtype;  // nullopt: the type they are computed in
  std::int64_t zero = 0;                  // ZeRO stage
  bool sync_bn = false;
  std::string bn_buffers = "local";  // or mean
  std::int64_t check_replicas = 0;   // steps; 0: at the end only

  std::optional<std::string> out;
  std::string resume;                      // "auto", or the directory of a checkpoint or a run
  std::optional<std::int64_t> save_every;  // steps; 0: at the end of each epoch
  std::int64_t keep_last = 3;
  std::int64_t snapshot_every = 10;  // steps
  bool keep_best = true;
  std::optional<std::int64_t> eval_every;  // epochs; 0: at the end only
  std::int64_t patience = 0;               // evaluations; 0: to the end
  std::optional<bool> tta;                 // test-time augmentation, at the end
  std::int64_t log_every = 20;             // steps
  std::string trace;
  std::int64_t profile = 0;  // steps; 0: none
  bool memory = false;

  // Actions, which config.toml does not contain.
  std::string config;
  std::string deepspeed_config;  // a JSON file
  bool print_config = false;
  bool dry_run = false;
  bool summary = false;
  bool quiet = false;
};

/// Returns the flags of convoy-train, or of a program of this name. `options` must outlive the result.
CommandLine train_command_line(TrainOptions& options, const std::string& program = "convoy-train");

/// Sets the flags without a value to their defaults for the model, data set and optimizer.
void resolve_recipe(TrainOptions& options);

/// Returns the settings of --loss-scale. Throws UsageError if the value is neither "dynamic" nor a number
/// from 1 to 2^24.
optim::LossScaleSettings loss_scale_settings(const TrainOptions& options);

/// Returns --lr as --lr-rule scales it by the batch size.
double peak_rate(const TrainOptions& options);

/// Returns the two numbers of --adam-betas. Throws UsageError unless both are at least 0 and less than 1.
std::pair<double, double> adam_betas(const TrainOptions& options);

/// Throws UsageError for flags that contradict each other. Accesses no files.
void check_consistency(const TrainOptions& options, const CommandLine& line);

}  // namespace convoy
