#include "convoy/apps/train/setup.h"

#include <algorithm>
#include <chrono>
#include <numeric>

#include "convoy/apps/common/text.h"
#include "convoy/apps/data/input_spec.h"
#include "convoy/apps/ranks/shared_data.h"
#include "convoy/apps/train/options/class_weights.h"
#include "convoy/apps/train/options/optimizer.h"
#include "convoy/apps/train/tuning/initial_parameters.h"
#include "convoy/datasets/formats/registry.h"
#include "convoy/datasets/loader/block_order.h"
#include "convoy/engine/nn/layers.h"
#include "convoy/kernels/augment.h"
#include "convoy/kernels/base/check.h"
#include "convoy/models/models.h"

namespace convoy {

namespace {

/// Computes the activations of residual blocks again if the flag asks for it.
void check_activation_checkpointing(const TrainOptions& options, const models::Model& model) {
  check(!options.activation_checkpointing || nn::checkpoint_residual_blocks(model.root()) > 0,
        "--activation-checkpointing: {} has no residual block, expected a ResNet", options.model);
}

}  // namespace

models::Model make_model(const TrainOptions& options, const data::DataSet& data, const DeviceContext& device,
                         bool resumes, std::string* new_head) {
  models::Model model = build_model({options.model, options.stem, options.activation}, data.image_shape(),
                                    data.classes.size(), static_cast<std::uint64_t>(options.seed), device);
  const Precision precision = parse_precision(options.precision);
  model.to(precision.parameters);
  if (!options.init_from.empty() && !resumes) {
    std::string description = load_initial_parameters(model, options.init_from);
    if (new_head != nullptr) *new_head = std::move(description);
  }
  check_activation_checkpointing(options, model);
  if (precision.is_half()) model.root().keep_low_precision_copies(precision.compute);
  return model;
}

void check_before_data(const TrainOptions& options, const CommandLine& line) {
  if (options.print_config) return;
  if (options.class_weights != "none" && options.class_weights != "balanced")
    read_class_weights(options.class_weights);
  if (!options.init_from.empty() && options.resume.empty()) check_initial_parameters(options.init_from);
  if (!line.given("freeze") && !line.given("lr-for") && !options.activation_checkpointing) return;
  const data::DatasetEntry& entry = data::find_dataset(options.data.dataset);
  const std::int64_t size = options.data.image_size;
  // The names of parameters do not depend on the size of the images, nor on the number of classes.
  Shape image = entry.has_fixed_shape() ? Shape(entry.image_shape) : Shape{64, 64, 3};
  if (size > 0) image = {size, size, image[2]};
  std::optional<models::Model> model;
  try {
    model = build_model({options.model, options.stem, options.activation}, image, 10, 0, Device::cpu());
  } catch (const UsageError&) {
    return;  // the network does not take this size, which may not be that of the images
  }
  make_parameter_groups(options, *model);
  check_activation_checkpointing(options, *model);
}

Setup set_up(TrainOptions& options, const CommandLine& line, DeviceContext device,
             const DataLocation& location, Job& job, bool resumes) {
  options.data.data = location.directory.string();
  data::DataSet data =
      *read_shared_data(job, location, options.data, static_cast<std::uint64_t>(options.seed));
  job.control_plane().enter(dist::Phase::start);
  if (data.classes.size() == 1)
    fail<DataError>("{}: 1 class ({}), with which a network learns nothing, expected at least 2",
                    location.directory.string(), data.classes.front());
  if (options.stem == "auto" && !options.init_from.empty() && !resumes &&
      models::find(options.model).has_stems)
    options.stem = stem_of_initial_parameters(options.init_from);
  options.stem = resolve_stem(options.model, options.stem, data.image_shape());
  if (options.activation == "auto" && !options.init_from.empty() && !resumes &&
      models::find(options.model).has_activations)
    options.activation = activation_of_initial_parameters(options.init_from);
  options.activation = resolve_activation(options.model, options.activation);
  if (data.chosen_size > 0) options.data.image_size = data.chosen_size;
  std::string config = line.config();
  std::map<std::string, std::string> start_rows;
  for (const char* row : {"optimizer", "lr", "batch"}) start_rows[row] = line.start_row(row);
  // Training, evaluation and prediction use the same statistics, which the checkpoint stores.
  data::TransformSpec transform =
      data::make_transform(*options.augment, data::channel_statistics(data.train));
  apply_augmentation(options.augmentation, transform);
  std::string new_head;
  models::Model model = make_model(options, data, device, resumes, &new_head);
  std::vector<std::string> warnings = data.warnings;
  if (!location.warning.empty()) warnings.insert(warnings.begin(), location.warning);
  return {.options = options,
          .config = std::move(config),
          .start_rows = std::move(start_rows),
          .device = std::move(device),
          .data = std::move(data),
          .model = std::move(model),
          .transform = transform,
          .warnings = std::move(warnings),
          .resumes = resumes,
          .new_head = std::move(new_head)};
}

void initialize_from_data(Setup& setup) {
  constexpr std::int64_t kMaxImages = 5000, kMaxPixels = kMaxImages * 64 * 64;  // at most 246 MB of RGB
  const models::Entry& entry = models::find(setup.options.model);
  if (!entry.initialize_from_data || !setup.options.init_from.empty() || setup.data.train.size() == 0) return;
  const auto begin = std::chrono::steady_clock::now();
  const data::ImageSet& train = setup.data.train;
  const Shape image = setup.data.image_shape();
  const std::int64_t count = std::min({train.size(), kMaxImages, kMaxPixels / (image[0] * image[1]) + 1});
  std::vector<std::int32_t> rows(static_cast<std::size_t>(count));
  std::iota(rows.begin(), rows.end(), 0);
  const DeviceContext cpu = Device::cpu();
  const Tensor numbers = Tensor::from(rows, {count}, cpu);
  const Tensor normalized = Tensor::empty({count, image[0], image[1], image[2]}, DType::f32, cpu);
  const Tensor images = train.source ? data::select(train, rows).images : train.images;
  CpuStream stream;
  kernels::augment(stream, images.view(), numbers.view(), numbers.view(),
                   setup.transform.evaluation().augment, {}, normalized.view());
  entry.initialize_from_data(setup.model, normalized);
  setup.initialization_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

data::ImageSet first_batch(const data::ImageSet& set, std::int64_t count, std::uint64_t seed) {
  count = std::min(count, set.size());
  std::vector<std::int32_t> order;
  if (set.source) {
    const data::BlockOrder blocks{
        .samples = set.size(), .block = set.source->about().block, .global_batch = count, .seed = seed};
    for (std::int64_t i = 0; i < count; ++i) order.push_back(static_cast<std::int32_t>(blocks.at(i)));
  } else {
    order = data::epoch_order(set.size(), seed, 0);
  }
  order.resize(static_cast<std::size_t>(count));
  return data::select(set, order);
}

std::vector<std::string> batch_warnings(const Setup& setup, int world_size) {
  constexpr std::int64_t kMinSamples = 16, kMaxSmallSize = 64;
  const TrainOptions& options = setup.options;
  const std::int64_t images = setup.data.train.size(), batch = std::min(*options.batch_size, images);
  std::vector<std::string> warnings;
  if (!options.overfit_batch && batch < *options.batch_size)
    warnings.push_back(fmt::format(
        "--batch-size {} is more than the {}, so each step is an epoch, which ends with an evaluation "
        "and a checkpoint; lower --batch-size",
        *options.batch_size, counted(images, "training image")));
  const Shape image = setup.data.image_shape();
  if (std::max(image[0], image[1]) > kMaxSmallSize && models::find(options.model).is_small)
    warnings.push_back(fmt::format(
        "{} is a network for images of about 32 pixels, found {} x {}; use --model resnet18, or --image-size 32",
        options.model, image[1], image[0]));
  if (world_size == 1 || options.sync_bn || !models::find(options.model).has_batch_norm) return warnings;
  const data::BatchPlan plan{.samples = batch,
                             .global_batch = batch,
                             .micro_batch = options.micro_batch_size,
                             .rank = world_size - 1,
                             .world_size = world_size};
  if (const std::int64_t samples = plan.positions(0, plan.micro_batches(0) - 1).size(); samples < kMinSamples)
    warnings.push_back(fmt::format(
        "each batch norm computes its statistics over {} samples, one rank's shard of --batch-size {}; "
        "--sync-bn uses the samples of all ranks",
        samples, *options.batch_size));
  return warnings;
}

namespace {

/// Returns whether a rank has a micro-batch of one sample in a step of `count` samples; with `is_synchronized`, whether
/// all ranks together have.
bool has_single_sample(const data::BatchPlan& plan, std::int64_t count, bool is_synchronized) {
  const auto parts = static_cast<int>(plan.micro_batches_of(count));
  for (int part = 0; part < parts; ++part) {
    std::int64_t of_all_ranks = 0;
    for (int rank = 0; rank < plan.world_size; ++rank) {
      const std::int64_t shard = data::shard_range(count, rank, plan.world_size).size();
      const std::int64_t samples = data::shard_range(shard, part, parts).size();
      if (samples == 1 && !is_synchronized) return true;
      of_all_ranks += samples;
    }
    if (of_all_ranks == 1) return true;
  }
  return false;
}

}  // namespace

void check_batch_norms(const models::Model& model, const data::BatchPlan& plan, std::int64_t steps,
                       bool is_synchronized) {
  // The last batch of an epoch may be smaller than all others.
  const std::int64_t first = plan.global_count(0),
                     last = plan.global_count(std::min(steps, plan.steps()) - 1);
  const bool is_first = has_single_sample(plan, first, is_synchronized);
  if (steps == 0 || (!is_first && !has_single_sample(plan, last, is_synchronized))) return;
  std::vector<std::int64_t> one_image = {1};
  one_image.insert(one_image.end(), model.input().sizes().begin(), model.input().sizes().end());
  std::vector<nn::LayerSummary> rows;
  model.root().infer(Shape(one_image), &rows);
  for (const nn::Module* const module : model.root().modules()) {
    const auto* const norm = dynamic_cast<const nn::BatchNorm2d*>(module);
    if (norm == nullptr || norm->is_frozen()) continue;
    for (const nn::LayerSummary& row : rows)
      check(
          row.name != norm->path() || row.outputs.front().numel() > row.outputs.front()[-1],
          "--batch-size {}: {} of an epoch of {} has {}{}, which leaves {} ({}) one value per channel, expected more; "
          "choose another --batch-size",
          plan.global_batch, is_first ? "the first batch" : "the last batch", counted(plan.samples, "image"),
          counted(is_first ? first : last, "image"),
          plan.world_size > 1 ? fmt::format(" on {} ranks", plan.world_size) : "", row.name, row.type);
  }
}

std::string summarize(const TrainOptions& options) {
  const data::DatasetEntry& entry = data::find_dataset(options.data.dataset);
  Shape image(entry.image_shape);
  auto classes = static_cast<std::size_t>(entry.classes);
  if (!entry.has_fixed_shape()) {
    const data::DataSet data =
        read_data(locate_data(options.data), options.data, static_cast<std::uint64_t>(options.seed));
    image = data.image_shape();
    classes = data.classes.size();
  }
  if (const std::int64_t size = options.data.image_size; size > 0) image = {size, size, image[2]};
  return build_model({options.model, options.stem, options.activation}, image, classes, 0, Device::cpu())
      .summary();
}

std::int64_t count_steps(const TrainOptions& options, std::int64_t steps_per_epoch) {
  const std::int64_t by_epochs = *options.epochs * steps_per_epoch;
  if (options.max_steps == 0) return by_epochs;
  return by_epochs == 0 ? options.max_steps : std::min(by_epochs, options.max_steps);
}

}  // namespace convoy
