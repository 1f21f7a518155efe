#include "convoy/apps/train/report/run_summary.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "convoy/apps/common/text.h"
#include "convoy/apps/flags/config_file.h"
#include "convoy/apps/train/report/reporter.h"
#include "convoy/engine/io/state_dict.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/json_text.h"
#include "convoy/kernels/runtime/library_versions.h"
#include "convoy/models/models.h"
#include "convoy/version.h"

namespace convoy {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

namespace {

/// Returns the settings of config.toml by their names, as JSON values of their types. The settings of flags that
/// take a list, such as --augment, are lists.
Json settings_to_json(const std::string& config) {
  TrainOptions options;
  const CommandLine line = train_command_line(options);
  Json settings = Json::object();
  for (const ConfigEntry& entry : parse_config(config, "configuration")) {
    const auto flag = std::ranges::find(line.flags(), entry.key, &CommandLine::Flag::name);
    if (flag != line.flags().end() && flag->details.value == "LIST")
      settings[entry.key] = split(entry.value == "none" ? "" : entry.value);
    else if (entry.is_text)
      set_path(settings, entry.key, entry.value);
    else
      settings[entry.key] = Json::parse(entry.value);
  }
  return settings;
}

/// Returns how to call a program of this directory: by its name if a shell finds it under that name, else by its path.
std::string command_of(const std::string& name) {
  std::error_code error;
  const fs::path own = fs::read_symlink("/proc/self/exe", error).parent_path() / name;
  if (error || !fs::exists(own, error)) return name;
  const char* const path = std::getenv("PATH");
  for (const std::string& directory : split(path == nullptr ? "" : path, ':'))
    if (fs::exists(fs::path(directory) / name, error)) return name;
  const std::string relative = fs::proximate(own, error).string();
  return error || relative.starts_with("..") ? own.string() : relative;
}

/// Returns the classes with their numbers of training images: "cats 12, dogs 30 and 8 more".
std::string describe_classes(const data::DataSet& data) {
  constexpr std::size_t kShown = 10;
  const std::vector<std::int64_t> counts = data::class_counts(data.train, data.classes.size());
  std::string text;
  for (std::size_t c = 0; c < std::min(kShown, counts.size()); ++c)
    text += fmt::format("{}{} {}", c == 0 ? "" : ", ", data.classes[c], counts[c]);
  return counts.size() > kShown ? fmt::format("{} and {} more", text, counts.size() - kShown) : text;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> describe(const Setup& setup, std::int64_t total_steps,
                                                          const Job& job) {
  const TrainOptions& o = setup.options;
  const data::DataSet& data = setup.data;
  std::string batch = fmt::format("{}{}", *o.batch_size, setup.start_rows.at("batch"));
  if (!setup.batch_search.empty()) batch += "; auto: " + setup.batch_search;
  const std::string schedule = to_string(*o.schedule);
  std::string rate = fmt::format("{} {} {}, {}", schedule, schedule == "constant" ? "at" : "with peak", *o.lr,
                                 counted(total_steps, "step"));
  if (const TrainingLength warmup = warmup_of(*o.schedule); warmup.unit != TrainingLength::Unit::fraction)
    rate += fmt::format(", warmup of {} {}", warmup.value,
                        warmup.unit == TrainingLength::Unit::steps ? "steps" : "epochs");
  else if (warmup.value > 0)
    rate += fmt::format(", {:.0f}% warmup", warmup.value * 100);
  if (const auto* const plateau = std::get_if<PlateauSchedule>(&*o.schedule))
    rate += fmt::format(", after more than {} without a lower {} loss",
                        counted(plateau->patience, data.validation.size() > 0 ? "evaluation" : "epoch"),
                        data.validation.size() > 0 ? "validation" : "training");
  rate += setup.start_rows.at("lr");
  if (setup.rate_search) rate += "; found: " + setup.rate_search->reason;
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
      {"classes", describe_classes(data)},
      {"images", setup.transform.describe()},
      {"optimizer", to_string(*o.optimizer) + setup.start_rows.at("optimizer")},
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
  if (job.in_threads() && setup.device.kind() == DeviceKind::cuda && !o.compute.cuda_graph.value_or(true))
    table.emplace_back("graph",
                       "none: ranks are threads, whose graphs may wait for each other (--cuda-graph)");
  table.emplace_back("seed", fmt::format("{}", o.seed));
  table.emplace_back("out", *o.out);
  return table;
}

Json start_event(const Setup& setup, const Trainer& trainer, const Job& job) {
  std::vector<std::string> hosts;  // by node number
  for (const dist::RankInfo& rank : job.all())
    if (rank.node == static_cast<int>(hosts.size())) hosts.push_back(rank.host);
  Json event = {{"schema", kLogSchema},
                {"version", kVersion},
                {"cpu_level", cpu_level()},
                {"step", trainer.state().step},
                {"total_steps", trainer.total_steps()},
                {"steps_per_epoch", trainer.steps_per_epoch()},
                {"config", settings_to_json(setup.config)},
                {"hosts", hosts},
                {"devices", job.devices()},
                {"world_size", job.info().world_size},
                {"ranks", job.describe()},
                {"model_parameters", setup.model.parameter_count()},
                {"train_images", setup.data.train.size()},
                {"validation_images", setup.data.validation.size()},
                {"test_images", setup.data.test.size()},
                {"classes", setup.data.classes},
                {"class_images", data::class_counts(setup.data.train, setup.data.classes.size())}};
  if (const auto& search = setup.rate_search)
    event["lr_search"] = {{"rates", search->rates},
                          {"losses", search->losses},
                          {"chosen", search->chosen},
                          {"reason", search->reason}};
  return event;
}

Json result_event(const Setup& setup, const Trainer& trainer, const Job& job) {
  const TrainingState state = trainer.state();
  const std::string split = setup.data.validation.size() > 0 ? "validation" : "test";
  Json result = {{split + "_accuracy", state.evaluated->accuracy},
                 {split + "_loss", state.evaluated->loss},
                 {"train_seconds", state.train_seconds},
                 {"images_per_second", static_cast<double>(state.samples) / state.train_seconds},
                 {"steps", state.step},
                 {"samples", state.samples},
                 {"world_size", job.info().world_size},
                 {"optimizer_bytes", trainer.parallel().optimizer_bytes()},
                 {"gradient_bytes", trainer.parallel().gradient_bytes()},
                 {"parameters_hash", io::parameters_hash(setup.model.root())}};
  if (const auto& best =
          state.stopping.best) {  // none if all losses are far above that of equal probabilities
    result["best_accuracy"] = best->accuracy;
    result["best_step"] = best->step;
  }
  if (setup.initialization_seconds) result["initialization_seconds"] = *setup.initialization_seconds;
  if (setup.options.patience > 0)
    result["stopped_early"] = trainer.finished() && state.step < trainer.total_steps();
  return result;
}

void print_result(const Json& result, const std::string& out, const std::string& program) {
  const std::string predict = program == "convoy-train" ? command_of("convoy-predict") : program + " predict";
  const auto percent = [&](const char* key) {
    return fmt::format("{:.2f}%", result[key].get<double>() * 100);
  };
  const std::string best = !result.contains("best_step")
                               ? ""
                               : fmt::format(" (best {} at step {})", percent("best_accuracy"),
                                             result["best_step"].get<std::int64_t>());
  std::vector<std::pair<std::string, std::string>> table;
  const bool has_validation = result.contains("validation_accuracy");
  if (has_validation) table.emplace_back("validation accuracy", percent("validation_accuracy") + best);
  std::string accuracy = percent("test_accuracy") + (has_validation ? "" : best);
  if (result.contains("tta_accuracy"))
    accuracy += fmt::format(", {} averaged over six views", percent("tta_accuracy"));
  table.emplace_back("test accuracy", accuracy);
  table.emplace_back(
      "training",
      fmt::format("{}, {}{}, {:.0f} images/s", format_duration(result["train_seconds"].get<double>()),
                  counted(result["steps"].get<std::int64_t>(), "step"),
                  result.value("stopped_early", false) ? " (ended early by --patience)" : "",
                  result["images_per_second"].get<double>()));
  table.emplace_back("parameters", fmt::format("hash {}", result["parameters_hash"].get<std::string>()));
  table.emplace_back("output", out);
  table.emplace_back("predict with", fmt::format("{} --checkpoint {} IMAGE...", predict, out));
  table.emplace_back("report with", fmt::format("{} {}", command_of("convoy-report"), out));
  fmt::print("\n");
  print_table(table);
}

}  // namespace convoy
