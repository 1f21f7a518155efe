// The flags of convoy-train.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "convoy/apps/data/data_source.h"
#include "convoy/apps/flags/command_line.h"
#include "convoy/apps/flags/compute.h"
#include "convoy/apps/ranks/job.h"
#include "convoy/datasets/transforms/transforms.h"
#include "convoy/engine/optim/loss_scaler.h"

namespace convoy {

// The options of each optimizer.
struct SgdOptions {
  static constexpr const char* kName = "sgd";
  double momentum = 0.9;
  std::optional<bool> nesterov;  // nullopt: with a momentum
};
struct AdamOptions {
  static constexpr const char* kName = "adam";
  static constexpr double kLr = 1e-3, kWeightDecay = 0;  // of the recipe
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-8;
};
struct AdamWOptions {
  static constexpr const char* kName = "adamw";
  static constexpr double kLr = 1e-3, kWeightDecay = 0.01;
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-8;
};
struct RmspropOptions {
  static constexpr const char* kName = "rmsprop";
  static constexpr double kLr = 1e-3, kWeightDecay = 0;
  double alpha = 0.99, momentum = 0, eps = 1e-8;
};
/// --lr is the rate of filters and weights that are matrices, and sgd_lr that of the last weight; those of
/// biases and norms is --bias-lr.
struct MuonOptions {
  static constexpr const char* kName = "muon";
  static constexpr double kLr = 0.02, kWeightDecay = 0.01;
  double momentum = 0.95;
  std::optional<bool> nesterov;  // nullopt: with a momentum
  std::optional<double> sgd_lr;  // nullopt: the default of SGD
  double sgd_momentum = 0.9;
  std::int64_t ns_steps = 5;
  bool normalize_filters = false;
};
using OptimizerOptions = std::variant<SgdOptions, AdamOptions, AdamWOptions, RmspropOptions, MuonOptions>;

// The options of each schedule.
struct ConstantSchedule {
  static constexpr const char* kName = "constant";
  TrainingLength warmup = 0;
};
struct LinearSchedule {
  static constexpr const char* kName = "linear";
  TrainingLength warmup = 0.2;
  double min_lr = 0;
};
struct CosineSchedule {
  static constexpr const char* kName = "cosine";
  TrainingLength warmup = 0.2;
  double min_lr = 0;
  std::int64_t cycles = 1;
  double growth = 1;  // of a cycle
};
struct StepSchedule {
  static constexpr const char* kName = "step";
  TrainingLength warmup = 0.2;
  std::string milestones = "0.5,0.75";
  double gamma = 0.1;
};
struct ExponentialSchedule {
  static constexpr const char* kName = "exponential";
  TrainingLength warmup = 0.2;
  double gamma = 0.95;
};
struct PolynomialSchedule {
  static constexpr const char* kName = "polynomial";
  TrainingLength warmup = 0.2;
  double min_lr = 0;
  double power = 0.9;
};
struct OneCycleSchedule {
  static constexpr const char* kName = "one-cycle";
};
struct PlateauSchedule {
  static constexpr const char* kName = "plateau";
  TrainingLength warmup = 0;
  double min_lr = 0;
  double gamma = 0.1;
  std::int64_t patience = 10;  // losses
  double threshold = 1e-4;
};
using ScheduleOptions =
    std::variant<ConstantSchedule, LinearSchedule, CosineSchedule, StepSchedule, ExponentialSchedule,
                 PolynomialSchedule, OneCycleSchedule, PlateauSchedule>;

/// Returns the warmup and the minimum rate of a schedule; 0 if it has none.
TrainingLength warmup_of(const ScheduleOptions& schedule);
double min_lr_of(const ScheduleOptions& schedule);

/// The augmentations that --augment does not list.
struct AugmentationOptions {
  double random_erasing = 0;  // the probability of an image
  double mixup = 0;           // alpha; 0: none
  double cutmix = 0;          // alpha; 0: none

  /// Returns whether images are mixed, so that a sample has no single label.
  bool mixes_labels() const { return mixup > 0 || cutmix > 0; }
};

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
  std::string class_weights = "none";  // balanced, or a file
  std::string sampling = "uniform";    // or balanced
  bool overfit_batch = false;

  std::optional<std::int64_t> epochs;  // 0: until --max-steps
  std::int64_t max_steps = 0;          // 0: no limit
  std::optional<std::int64_t> batch_size;
  bool finds_batch_size = false;      // --batch-size auto: until find_batch_size() sets batch_size
  std::int64_t micro_batch_size = 0;  // 0: the whole batch at once
  std::optional<OptimizerOptions> optimizer;
  std::optional<double> lr;
  bool finds_lr = false;          // --lr find: until find_learning_rate() sets lr
  std::optional<double> bias_lr;  // nullopt: that of their weights
  std::optional<double> weight_decay;
  std::optional<bool> decay_biases;
  std::optional<double> label_smoothing;
  std::optional<std::string> loss_reduction;
  double clip_norm = 0;  // 0: no clipping
  std::optional<ScheduleOptions> schedule;
  std::optional<std::string> freeze;
  std::string lr_for = "none";
  double ema = 0;  // decay; 0: no average
  std::int64_t seed = 1;
  std::int64_t repeat = 1;           // trainings, with seeds from `seed` on
  std::optional<std::string> sweep;  // NAME=VALUE,... of several flags, with spaces between them

  ComputeOptions compute;
  std::string precision = "fp32";
  std::string loss_scale = "dynamic";  // or a number

  JobOptions job;
  double bucket_mb = 10;                  // MiB
  std::optional<std::string> grad_dtype;  // nullopt: the type they are computed in
  std::int64_t zero = 0;                  // ZeRO stage
  std::string zero_group = "world";       // or host
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
  std::int64_t log_every = 0;              // steps; 0: 1, 2, 5, 10, and then by time
  std::string trace;                       // a file; "auto": in the output directory; empty: none
  std::int64_t profile = 0;                // steps; 0: none
  bool memory = false;

  // Actions, which config.toml does not contain.
  std::string config;
  bool print_config = false;
  bool dry_run = false;
  bool summary = false;
  bool quiet = false;
};

/// Adds --model and --stem.
void add_model_flags(CommandLine& line, TrainOptions& options);
/// Adds --batch-size, --micro-batch-size and --optimizer. `has_auto`: also --batch-size auto, for programs that call
/// find_batch_size() (rate_search.h).
void add_batch_flags(CommandLine& line, TrainOptions& options, bool has_auto);
/// Adds --random-erasing, --mixup and --cutmix. `options` must outlive `line`.
void add_augmentation_flags(CommandLine& line, AugmentationOptions& options);
/// Adds these augmentations to the transforms of a training.
void apply_augmentation(const AugmentationOptions& options, data::TransformSpec& transform);
/// Returns the defaults of ResNet-20 on CIFAR-10, and of the flags of each optimizer and schedule, as --help shows them.
std::map<std::string, std::string> default_texts();
/// Returns the flags of convoy-train, or of a program of this name. `options` must outlive the result.
CommandLine train_command_line(TrainOptions& options, const std::string& program = "convoy-train");

/// Returns the settings of `line` that all ranks must have in common: those that are not among `local`.
std::vector<dist::ConsistencyEntry> consistency_entries_of(const CommandLine& line,
                                                           const std::vector<std::string>& local);

/// Sets the model and the image size of own photographs (--dataset folder) that `line` has not been given. Call it
/// before CommandLine::settle(), since other defaults depend on the model.
void set_default_model(TrainOptions& options, const CommandLine& line);

/// Returns the optimizer of this name with its defaults for the model; for "", that of the model's recipe.
OptimizerOptions default_optimizer(const TrainOptions& options, std::string_view name);
/// Returns the schedule of this name with its defaults for the model; for "", that of the model's recipe.
/// options.optimizer must be set.
ScheduleOptions default_schedule(const TrainOptions& options, std::string_view name);

/// Sets the flags without a value to their defaults for the model, data set and optimizer.
void resolve_recipe(TrainOptions& options);

/// Returns the settings of --loss-scale. Throws UsageError if the value is neither "dynamic" nor a number
/// from 1 to 2^24.
optim::LossScaleSettings loss_scale_settings(const TrainOptions& options);

/// Throws UsageError for flags that contradict each other. Accesses no files.
void check_consistency(const TrainOptions& options, const CommandLine& line);

}  // namespace convoy
