// The setup of a training: resolved flags, device, data set and model.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "convoy/apps/data/data_source.h"
#include "convoy/apps/ranks/job.h"
#include "convoy/apps/train/options/options.h"
#include "convoy/datasets/loader/sampler.h"
#include "convoy/datasets/transforms/transforms.h"
#include "convoy/models/model.h"

namespace convoy {

/// The result of --lr find (rate_search.h).
struct RateSearch {
  std::vector<double> rates, losses;  // of the steps, in their order
  double chosen = 0;
  std::string reason = {};  // "a third of 0.41, where …"
};

/// The resolved inputs of a training.
struct Setup {
  const TrainOptions& options;
  std::string config;                             // all resolved flags as TOML
  std::map<std::string, std::string> start_rows;  // as CommandLine::start_row() returns them, by row
  DeviceContext device;
  data::DataSet data;
  models::Model model;
  data::TransformSpec transform;
  std::vector<std::string> warnings;
  bool resumes = false;                               // from a checkpoint
  std::string new_head;                               // as load_initial_parameters() returns it
  std::string batch_search = {};                      // with --batch-size auto, the figures of a new training
  std::optional<RateSearch> rate_search = {};         // with --lr find, of a new training
  std::optional<double> initialization_seconds = {};  // of initialize_from_data(), on the rank that called it
};

/// Makes the network of --model in the types of --precision. Unless the training `resumes` from a checkpoint,
/// loads its parameters from --init-from, if given. Sets `new_head`, unless it is null, to what
/// load_initial_parameters() returns.
models::Model make_model(const TrainOptions& options, const data::DataSet& data, const DeviceContext& device,
                         bool resumes = false, std::string* new_head = nullptr);

/// Checks flags that depend on files or on the network, before data are read or downloaded: --init-from, unless the
/// training may resume, and the names of --freeze and --lr-for. `options` must be resolved. Throws the error that the
/// training would end with later.
void check_before_data(const TrainOptions& options, const CommandLine& line);

/// Reads the data set, once for all ranks of this process, and makes the model. Sets the options that depend
/// on the images: --data, --stem and --image-size.
Setup set_up(TrainOptions& options, const CommandLine& line, DeviceContext device,
             const DataLocation& location, Job& job, bool resumes);

/// Calls the function of the model that sets initial values from training images (models::Entry), if it
/// has one and --init-from is not given. Passes the first 5,000 images, or fewer if they are large. Rank 0
/// calls this for a new training; Trainer::broadcast_state() copies the values to the other ranks. Sets
/// initialization_seconds.
void initialize_from_data(Setup& setup);

/// Returns the images of the first global batch of a training, in its order: `count` images, or all if there
/// are fewer.
data::ImageSet first_batch(const data::ImageSet& set, std::int64_t count, std::uint64_t seed);

/// Returns warnings if a batch has more samples than the training set, if the images are too large for a network for
/// small images, and if the batch norms of a rank see few samples at a time.
std::vector<std::string> batch_warnings(const Setup& setup, int world_size);

/// Throws UsageError if a batch norm of the model would see a single value per channel in one of the `steps` steps:
/// a layer of one pixel, in a batch of one image on some rank or, with `is_synchronized`, on all ranks together.
void check_batch_norms(const models::Model& model, const data::BatchPlan& plan, std::int64_t steps,
                       bool is_synchronized);

/// Returns the table of layers for --summary. Reads the data set only if its image size is not known in
/// advance.
std::string summarize(const TrainOptions& options);

/// Returns the number of steps of a training, from --epochs and --max-steps.
std::int64_t count_steps(const TrainOptions& options, std::int64_t steps_per_epoch);

}  // namespace convoy
