#include "convoy/apps/train/setup.h"

#include <algorithm>
#include <chrono>
#include <numeric>

#include "convoy/apps/common/config_file.h"
#include "convoy/apps/common/counted.h"
#include "convoy/apps/common/flag_names.h"
#include "convoy/apps/common/input_spec.h"
#include "convoy/apps/ranks/shared_data.h"
#include "convoy/apps/train/selection/sample_selection.h"
#include "convoy/apps/train/tuning/initial_parameters.h"
#include "convoy/datasets/formats/registry.h"
#include "convoy/datasets/loader/sampler.h"
#include "convoy/engine/nn/layers.h"
#include "convoy/kernels/augment.h"
#include "convoy/kernels/base/check.h"
#include "convoy/models/models.h"

namespace convoy {

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
  check(!options.activation_checkpointing || nn::checkpoint_residual_blocks(model.root()) > 0,
        "--activation-checkpointing: {} has no residual block, expected a ResNet", options.model);
  if (precision.is_half()) model.root().keep_low_precision_copies(precision.compute);
  return model;
}

Setup set_up(TrainOptions& options, const CommandLine& line, DeviceContext device,
             const DataLocation& location, Job& job, bool resumes) {
  options.data.data = location.directory.string();
  data::DataSet data =
      *read_shared_data(job, location, options.data, static_cast<std::uint64_t>(options.seed));
  job.control_plane().enter(dist::Phase::start);
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
  // Training, evaluation and prediction use the same statistics, which the checkpoint stores.
  data::TransformSpec transform =
      data::make_transform(*options.augment, data::channel_statistics(data.train));
  apply_augmentation(options.augmentation, transform);
  std::string new_head;
  models::Model model = make_model(options, data, device, resumes, &new_head);
  std::vector<std::string> warnings;
  for (const std::string& warning : data.warnings) warnings.push_back(with_flag_names(warning));
  if (!location.warning.empty()) warnings.insert(warnings.begin(), location.warning);
  return {.options = options,
          .config = std::move(config),
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
  const Tensor& images = setup.data.train.images;
  const Shape image = setup.data.image_shape();
  const std::int64_t count = std::min({images.size(0), kMaxImages, kMaxPixels / (image[0] * image[1]) + 1});
  std::vector<std::int32_t> rows(static_cast<std::size_t>(count));
  std::iota(rows.begin(), rows.end(), 0);
  const DeviceContext cpu = Device::cpu();
  const Tensor numbers = Tensor::from(rows, {count}, cpu);
  const Tensor normalized = Tensor::empty({count, image[0], image[1], image[2]}, DType::f32, cpu);
  CpuStream stream;
  kernels::augment(stream, images.view(), numbers.view(), numbers.view(),
                   setup.transform.evaluation().augment, {}, normalized.view());
  entry.initialize_from_data(setup.model, normalized);
  setup.initialization_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

data::ImageSet first_batch(const data::ImageSet& set, std::int64_t count, std::uint64_t seed) {
  std::vector<std::int32_t> order = data::epoch_order(set.size(), seed, 0);
  order.resize(static_cast<std::size_t>(std::min(count, set.size())));
  return data::select(set, order);
}

std::vector<std::pair<std::string, std::string>> describe(const Setup& setup, std::int64_t total_steps,
                                                          const Job& job) {
  const TrainOptions& o = setup.options;
  const data::DataSet& data = setup.data;
  std::string optimizer = to_string(*o.optimizer);
  std::visit(
      [&](const auto& chosen) {
        if constexpr (requires { chosen.nesterov; })
          if (*chosen.nesterov) optimizer += ", Nesterov";
        if constexpr (requires { chosen.momentum; })
          optimizer +=
              fmt::format("{}momentum {}", optimizer.ends_with("Nesterov") ? " " : ", ", chosen.momentum);
        if constexpr (requires { chosen.trust_coefficient; })
          optimizer += fmt::format(", trust coefficient {}", chosen.trust_coefficient);
        if constexpr (requires { chosen.sgd_lr; })
          optimizer += fmt::format(", SGD with peak {} (biases {}) and momentum {} for other parameters",
                                   chosen.sgd_lr, *o.bias_lr, chosen.sgd_momentum);
      },
      *o.optimizer);
  optimizer += fmt::format(", weight decay {}", *o.weight_decay);
  if (o.loss_reduction == "sum") optimizer += ", sum of the losses";
  if (*o.label_smoothing > 0) optimizer += fmt::format(", label smoothing {}", *o.label_smoothing);
  if (o.ema > 0) optimizer += fmt::format(", average of weights with decay {}", o.ema);
  if (o.lookahead > 0)
    optimizer += fmt::format(", Lookahead every {} steps (alpha {})", o.lookahead, *o.lookahead_alpha);
  if (o.clip_norm > 0) optimizer += fmt::format(", gradients clipped to {}", o.clip_norm);
  std::string batch = fmt::format("{}", *o.batch_size);
  if (o.micro_batch_size > 0) batch += fmt::format(" in micro-batches of {}", o.micro_batch_size);
  if (o.activation_checkpointing) batch += ", activations of residual blocks computed again";
  if (o.hardest < 1)
    batch += fmt::format(", of which the hardest {} are trained", hardest_count(o.hardest, *o.batch_size));
  if (!o.selection.empty()) batch += fmt::format(", samples chosen by {}", o.selection);
  const std::string schedule = to_string(*o.schedule);
  std::string rate = fmt::format("{} {} {}, {}", schedule, schedule == "constant" ? "at" : "with peak",
                                 peak_rate(o), counted(total_steps, "step"));
  if (o.lr_rule != "none")
    rate += fmt::format(", --lr {} scaled from a batch of {} ({})", *o.lr, *o.lr_base_batch, o.lr_rule);
  if (const TrainingLength warmup = warmup_of(*o.schedule); warmup.unit != TrainingLength::Unit::fraction)
    rate += fmt::format(", warmup of {} {}", warmup.value,
                        warmup.unit == TrainingLength::Unit::steps ? "steps" : "epochs");
  else if (warmup.value > 0)
    rate += fmt::format(", {:.0f}% warmup", warmup.value * 100);
  if (const auto* const plateau = std::get_if<PlateauSchedule>(&*o.schedule))
    rate += fmt::format(", times {} after more than {} without a lower {} loss", plateau->gamma,
                        counted(plateau->patience, data.validation.size() > 0 ? "evaluation" : "epoch"),
                        data.validation.size() > 0 ? "validation" : "training");
  if (o.bias_lr && !std::holds_alternative<MuonOptions>(*o.optimizer))
    rate += fmt::format(", biases and norms {:.6g}", *o.bias_lr * peak_rate(o) / *o.lr);
  if (o.lr_for != "none") rate += fmt::format(", {}", o.lr_for);
  std::string model = setup.model.name();
  if (models::find(o.model).has_stems) model += fmt::format(" with the {} stem", o.stem);
  if (o.activation == "silu") model += " with SiLU";
  const bool has_validation = data.validation.size() > 0;
  const std::string validation =
      has_validation ? fmt::format(", {} validation", data.validation.size()) : std::string();
  std::vector<std::pair<std::string, std::string>> table = {
      {"model", fmt::format("{}, {} parameters, {:.1f} MFLOPs per image (forward), {}", model,
                            setup.model.parameter_count(), static_cast<double>(setup.model.flops()) / 1e6,
                            o.precision)},
      {"data", fmt::format("{}: {} training{} and {} test images of {}, {}", data.note, data.train.size(),
                           validation, data.test.size(), data.image_shape().text(),
                           counted(std::ssize(data.classes), "class", "classes"))},
      {"images", setup.transform.describe()},
      {"optimizer", optimizer},
      {"lr", rate},
      {"batch", batch},
      {"device", fmt::format("{}{}, {}, {}", setup.device.name(),
                             o.compute.cpu_level ? fmt::format(" with {}", *o.compute.cpu_level) : "",
                             counted(o.compute.threads, "thread"), counted(o.data.workers, "loader worker"))},
  };
  auto after_model = table.begin() + 1;
  const auto add = [&](const char* name, const std::string& text) {
    after_model = table.insert(after_model, {name, text}) + 1;
  };
  if (!o.init_from.empty() && !setup.resumes) {
    add("init-from", fmt::format("initial parameters of {}", o.init_from));
    if (!setup.new_head.empty()) add("head", setup.new_head);
  }
  if (o.freeze != "none") add("freeze", *o.freeze);
  if (o.patience > 0)
    table.emplace_back(
        "patience", fmt::format("ends after {} without a higher {}", counted(o.patience, "evaluation"),
                                has_validation ? "validation accuracy"
                                               : "test accuracy; the test images decide, --validation holds "
                                                 "out training images for this"));
  if (!job.is_alone()) table.emplace_back("ranks", job.describe());
  if (!o.compute.no_gpu.empty()) table.emplace_back("gpu", "none: " + o.compute.no_gpu);
  table.emplace_back("seed", fmt::format("{}", o.seed));
  table.emplace_back("out", *o.out);
  return table;
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

void take_from_selection(TrainOptions& options) {
  if (options.selection.empty()) return;
  const Selection selection = read_selection(options.selection);
  const SelectionInfo& info = selection.info;
  if (!options.batch_size) options.batch_size = info.batch_size;
  if (!options.epochs) options.epochs = options.max_steps > 0 ? 0 : info.epochs;
  check(*options.batch_size == info.batch_size,
        "--batch-size {}: --selection {} has {} samples of each batch, expected {}", *options.batch_size,
        options.selection, info.batch_size, info.batch_size);
  check(options.seed == info.seed, "--seed {}: --selection {} was made with --seed {}, expected the same",
        options.seed, options.selection, info.seed);
  const std::int64_t steps =
      count_steps(options, (selection.ids.size(1) + info.batch_size - 1) / info.batch_size);
  check(steps <= info.steps, "--selection {}: found samples of {}, expected at least the {} of this training",
        options.selection, counted(info.steps, "step"), steps);
}

std::map<std::string, std::string> flags_by_name(const std::string& config) {
  std::map<std::string, std::string> flags;
  for (ConfigEntry& entry : parse_config(config, "configuration")) flags[entry.key] = std::move(entry.value);
  return flags;
}

}  // namespace convoy
