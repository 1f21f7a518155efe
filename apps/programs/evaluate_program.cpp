// convoy-evaluate: computes accuracy, loss, confusion matrix, precision, recall and F1 of a checkpoint on a data set.
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "convoy/apps/common/text.h"
#include "convoy/apps/data/data_source.h"
#include "convoy/apps/data/evaluator.h"
#include "convoy/apps/data/input_spec.h"
#include "convoy/apps/flags/compute.h"
#include "convoy/apps/flags/run_main.h"
#include "convoy/apps/programs/predictions.h"
#include "convoy/apps/programs/programs.h"
#include "convoy/apps/ranks/job.h"
#include "convoy/apps/ranks/local_ranks.h"
#include "convoy/apps/ranks/shared_data.h"
#include "convoy/engine/io/file.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/json_text.h"
#include "convoy/kernels/base/printable.h"

namespace convoy {
namespace {

struct EvaluateOptions {
  std::string checkpoint;
  DataOptions data;
  std::string split = "test";
  std::int64_t batch_size = 128;
  bool tta = false;
  ComputeOptions compute;
  JobOptions job;
  std::optional<std::string> precision;
  std::string json, logits;
};

CommandLine evaluate_command_line(EvaluateOptions& o, const std::string& name) {
  CommandLine line(
      name,
      "Evaluates a checkpoint on a data set: accuracy, loss, confusion matrix, and precision, recall and F1 of "
      "each class.");
  line.group("Model");
  line.add("checkpoint", &o.checkpoint, "Checkpoint directory, or run directory (its best checkpoint)",
           {.value = "DIR", .required = true});
  add_data_flags(line, o.data, "the training data set");
  line.add(
      "split", &o.split,
      "Part of the data set; validation: the training images that --validation of the training held out, which "
      "train then leaves out, or those of a directory val/",
      {.value = "NAME", .choices = {"test", "train", "validation"}});
  line.add("batch-size", &o.batch_size, "Batch size (images)",
           {.value = "N", .minimum = 1, .maximum = 1 << 20});
  line.add("tta", &o.tta, "Predictions that are averages over six views of each image: shifted, mirrored");
  add_compute_flags(line, o.compute);
  add_data_on_device_flag(line, o.compute);
  line.add("precision", &o.precision, "Compute precision",
           {.value = "NAME",
            .default_text = "that of the training, or fp32 if unsupported",
            .choices = precision_names()});
  line.group("Output");
  line.add("json", &o.json, "Result file (JSON), with the confusion matrix for up to 1,000 classes",
           {.value = "FILE"});
  line.add("logits", &o.logits, "File for the logits (NumPy, images x classes, in the order of the data set)",
           {.value = "FILE.npy"});
  add_job_flags(line, o.job);
  add_devices_flag(line, o.job);
  return line;
}

/// Fills in the data flags that were not given with those of the training run.
void fill_from_checkpoint(DataOptions& data, const CommandLine& line, const LoadedModel& loaded) {
  const auto flag = [&](const char* name) { return value_at(loaded.flags, name); };
  const bool same_set = !line.given("dataset") || data.dataset == loaded.input.dataset;
  if (!line.given("dataset")) data.dataset = flag("dataset").empty() ? loaded.input.dataset : flag("dataset");
  std::error_code ignored;
  if (same_set && !line.given("data") &&
      (data.dataset == "shards" || std::filesystem::is_directory(flag("data"), ignored)))
    data.data = flag("data");
  if (same_set && !flag("validation").empty()) data.validation = flag("validation");
  if (!line.given("image-size")) {
    check(loaded.input.image[0] == loaded.input.image[1] || same_set,
          "--image-size: the model takes {} images, expected the data set of the training",
          loaded.input.image.text());
    // The data set of the training takes the flag of the training; another data set is resized to the model's
    // input.
    data.image_size =
        same_set && !flag("image-size").empty() ? std::stoll(flag("image-size")) : loaded.input.image[0];
  }
}

/// Throws UsageError unless image shape and number of classes are those of the model.
void check_fit(const LoadedModel& loaded, const data::DataSet& data, const std::filesystem::path& checkpoint,
               bool warns) {
  check(data.image_shape() == loaded.input.image, "--dataset: {} has {} images, expected {}, the input of {}",
        data.name, data.image_shape().text(), loaded.input.image.text(), checkpoint.string());
  check(data.classes.size() == loaded.input.classes.size(),
        "--dataset: {} has {} classes, expected {}, the number of {}", data.name, data.classes.size(),
        loaded.input.classes.size(), checkpoint.string());
  const auto stored = [](const std::string& name) { return as_utf8<nlohmann::json>(name); };
  if (warns && !std::ranges::equal(data.classes, loaded.input.classes, {}, stored, stored))
    fmt::print(stderr, "convoy-evaluate: warning: the class names differ from those of the training\n");
}

/// Prints the confusion matrix (rows are labels, columns are predictions) or, for more than 20 classes, counts,
/// and the scores of each class.
void print_confusion(const Evaluation& evaluation, const std::vector<std::string>& names) {
  constexpr int kMaxColumns = 20;
  const auto classes = static_cast<std::size_t>(evaluation.classes);
  std::size_t width = 5;
  std::vector<std::string> shown;
  for (const std::string& name : names) {
    shown.push_back(without_control_characters(name));
    width = std::max(width, name.size());
  }
  fmt::print("\n{:<{}}", "", width + 5);
  if (evaluation.classes <= kMaxColumns) {
    for (std::size_t c = 0; c < classes; ++c) fmt::print("{:>6}", c);
  } else {
    fmt::print("  correct     of");
  }
  fmt::print("   recall precision      F1\n");
  const std::vector<Evaluation::Scores> scores = evaluation.scores_by_class();
  for (std::size_t row = 0; row < classes; ++row) {
    fmt::print("{:>3}  {:<{}}", row, shown[row], width);
    if (evaluation.classes <= kMaxColumns) {
      for (std::size_t c = 0; c < classes; ++c) fmt::print("{:>6}", evaluation.confusion[row * classes + c]);
    } else {
      fmt::print("{:>9}{:>7}", evaluation.correct[row], evaluation.images[row]);
    }
    fmt::print("{:>8.1f}%{:>9.1f}%{:>7.1f}%\n", scores[row].recall * 100, scores[row].precision * 100,
               scores[row].f1 * 100);
  }
}

/// Writes the confusion matrix if there is one, and the counts of each class.
void write_json(const std::string& file, const std::filesystem::path& checkpoint, const LoadedModel& loaded,
                const data::DataSet& data, const EvaluateOptions& options, const Evaluation& evaluation) {
  nlohmann::ordered_json json;
  set_path(json, "checkpoint", checkpoint.string());
  json.update({{"step", loaded.manifest.step},
               {"model", loaded.model.name()},
               {"dataset", data.name},
               {"split", options.split},
               {"tta", options.tta},
               {"count", evaluation.count},
               {"loss", evaluation.loss},
               {"accuracy", evaluation.accuracy},
               {"classes", loaded.input.classes},
               {"images", evaluation.images},
               {"correct", evaluation.correct}});
  if (evaluation.top5_accuracy) json["top5_accuracy"] = *evaluation.top5_accuracy;
  for (const char* name : {"precision", "recall", "f1"}) json[name] = nlohmann::ordered_json::array();
  for (const Evaluation::Scores& scores : evaluation.scores_by_class()) {
    json["precision"].push_back(scores.precision);
    json["recall"].push_back(scores.recall);
    json["f1"].push_back(scores.f1);
  }
  const Evaluation::Scores macro = evaluation.macro_scores();
  json["macro"] = {{"precision", macro.precision}, {"recall", macro.recall}, {"f1", macro.f1}};
  if (!evaluation.confusion.empty()) json["confusion"] = evaluation.confusion_rows();
  io::write_file_atomically(file, json_text(json, 2) + "\n");
}

/// Evaluates this rank's shard of the images. Rank 0 prints the result of all ranks.
int evaluate_on_rank(EvaluateOptions& options, const CommandLine& line, Job& job) {
  const bool first = job.is_first();
  const io::Checkpoint found = find_checkpoint(options.checkpoint);
  const std::filesystem::path& checkpoint = found.path;
  Precision precision = parse_precision(
      options.precision.value_or(value_at(stored_flags(found.manifest), "precision", "fp32")));
  const DeviceContext device = open_device(options.compute, precision, job.info(), job.ranks_on_my_cores());
  job.connect(device);
  if (options.precision) check_precision(precision, device);
  device.set_autotune(false);  // takes longer than it saves in one epoch
  if (!supports(device, precision)) precision = parse_precision("fp32");
  LoadedModel loaded = load_model(found, device);
  loaded.model.to(precision.parameters);
  if (precision.is_half()) loaded.model.root().keep_low_precision_copies(precision.compute);
  fill_from_checkpoint(options.data, line, loaded);
  options.data.quiet = !first;
  DataLocation location;
  job.run_on_rank_zero_first([&] { location = locate_data(options.data); });
  const std::uint64_t seed = std::stoull(value_at(loaded.flags, "seed", "1"));
  const data::DataSet data = *read_shared_data(job, location, options.data, seed);
  std::vector<std::string> warnings = data.warnings;
  if (auto warning = oversubscription_warning(job, device)) warnings.push_back(std::move(*warning));
  const auto print_warnings = [first](const std::vector<std::string>& texts) {
    for (const std::string& text : texts)
      if (first) fmt::print(stderr, "convoy-evaluate: warning: {}\n", without_control_characters(text));
  };
  print_warnings(warnings);
  check_fit(loaded, data, checkpoint, first);
  check(options.split != "validation" || data.validation.size() > 0,
        "--split validation: the training of {} held out no images of this data set, expected test or train",
        checkpoint.string());
  const data::ImageSet& images = options.split == "train"        ? data.train
                                 : options.split == "validation" ? data.validation
                                                                 : data.test;
  job.verify_consistency({{"parameters", loaded.manifest.parameters_hash},
                          {"--batch-size", std::to_string(options.batch_size)},
                          {"--precision", precision.name},
                          {"--tta", options.tta ? "true" : "false"},
                          {"--logits", options.logits.empty() ? "none" : options.logits},
                          {fmt::format("{} data", options.split), hash_of(images)}});

  std::vector<std::pair<std::string, std::string>> table = {
      {"checkpoint", checkpoint.string()},
      {"model", fmt::format("{}, step {}, {}", loaded.model.name(), loaded.manifest.step, precision.name)},
      {"data", fmt::format("{}: {}", data.note, counted(images.size(), options.split + " image"))},
      {"device", options.compute.no_gpu.empty()
                     ? device.name()
                     : fmt::format("{} ({})", device.name(), options.compute.no_gpu)}};
  if (!job.is_alone()) table.emplace_back("ranks", job.describe());
  if (first) print_table(table);
  const Evaluation evaluation = *evaluate(
      loaded.model, device, images,
      {.transform = loaded.input.transform,
       .views = options.tta,
       .keep_logits = !options.logits.empty(),
       .top5 = loaded.model.classes() > 5,
       .batch_size = options.batch_size,
       .workers = static_cast<int>(options.data.workers),
       .dtype = precision.compute,
       .resident_images =
           keep_data_on_device(options.compute, device, images) ? images.images.to(device) : Tensor(),
       .comm = job.control(),
       .stop = {},
       .progress = {}});
  if (!first) return 0;
  print_warnings(device.take_warnings());
  print_confusion(evaluation, loaded.input.classes);
  fmt::print("\n");
  table = {{"accuracy", fmt::format("{:.2f}%{}", evaluation.accuracy * 100,
                                    options.tta ? ", averaged over six views" : "")}};
  if (evaluation.top5_accuracy)
    table.emplace_back("top-5", fmt::format("{:.2f}%", *evaluation.top5_accuracy * 100));
  const Evaluation::Scores macro = evaluation.macro_scores();
  table.emplace_back("macro", fmt::format("precision {:.2f}%, recall {:.2f}%, F1 {:.2f}%",
                                          macro.precision * 100, macro.recall * 100, macro.f1 * 100));
  table.emplace_back("loss", format_loss(evaluation.loss));
  table.emplace_back("images", fmt::format("{}", evaluation.count));
  print_table(table);
  if (!options.json.empty()) write_json(options.json, checkpoint, loaded, data, options, evaluation);
  if (!options.logits.empty()) io::write_file_atomically(options.logits, encode_npy(evaluation.logits));
  return 0;
}

int run_evaluate(const std::string& name, int argc, char** argv) {
  EvaluateOptions options;
  CommandLine line = evaluate_command_line(options, name);
  if (!line.parse(argc, argv)) return 0;
  check_output_file("--json", options.json);
  check_output_file("--logits", options.logits);
  LocalRanks ranks(options.job, options.compute);
  return ranks.run(name.c_str(), [&](Job& job) {
    EvaluateOptions rank_options = options;  // completed by the rank's device and data
    return evaluate_on_rank(rank_options, line, job);
  });
}

}  // namespace

int run_evaluate_program(const std::string& name, int argc, char** argv) {
  return run_main(name.c_str(), [&] { return run_evaluate(name, argc, argv); });
}

}  // namespace convoy
