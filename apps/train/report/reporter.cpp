#include "convoy/apps/train/report/reporter.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "convoy/apps/common/counted.h"
#include "convoy/apps/train/report/evaluation_file.h"
#include "convoy/engine/io/state_dict.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/runtime/library_versions.h"
#include "convoy/version.h"

namespace convoy {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

namespace {

ProgressOptions progress_options(const Setup& setup, const Trainer& trainer, const Job& job) {
  constexpr double kForwardShare =
      1.0 / 3;                  // of a step: a backward pass takes twice as long as a forward pass
  constexpr double kViews = 6;  // of --tta
  const TrainOptions& options = setup.options;
  const double batches = static_cast<double>(setup.data.evaluated().size()) /
                         static_cast<double>(std::max<std::int64_t>(*options.batch_size, 1));
  const double of_test =
      setup.data.validation.size() == 0
          ? 0
          : static_cast<double>(setup.data.test.size()) / static_cast<double>(setup.data.validation.size());
  return {.plan = {.total_steps = trainer.total_steps(),
                   .steps_per_evaluation = *options.eval_every * trainer.steps_per_epoch(),
                   .steps_of_evaluation = kForwardShare * batches,
                   .final_evaluations = (*options.tta ? kViews : 0) + of_test},
          .steps_per_epoch = trainer.steps_per_epoch(),
          .may_redraw = !job.by_mpirun(),
          .quiet = options.quiet};
}

/// Returns the elements of a comma-separated list; none for "none".
std::vector<std::string> split_list(const std::string& text) {
  std::vector<std::string> elements;
  std::istringstream parts(text == "none" ? "" : text);
  for (std::string part; std::getline(parts, part, ',');) elements.push_back(part);
  return elements;
}

template <class T>
Json to_json(const T& value) {
  return value;
}
Json to_json(const std::array<double, 2>& pair) { return fmt::format("{},{}", pair[0], pair[1]); }
/// Returns a fraction as a number, and other lengths as a text such as "500steps".
Json to_json(const TrainingLength& length) {
  if (length.unit == TrainingLength::Unit::fraction) return length.value;
  return length.text();
}

/// Returns the value of a flag; null for an optional flag without a value.
Json setting_to_json(const CommandLine::Flag& flag) {
  if (flag.target.chosen) return flag.target.chosen();
  const std::optional<FlagVariable> variable = flag.target.variable();
  if (!variable) return {};
  return std::visit(
      [&](const auto* target) -> Json {
        if constexpr (requires { target->has_value(); })
          return target->has_value() ? to_json(**target) : Json();
        else
          return to_json(*target);
      },
      *variable);
}

/// Returns the settings of config.toml by their names, as JSON values of their types. The settings of flags that
/// take a list, such as --augment, are lists.
Json settings_to_json(TrainOptions options) {
  Json settings = Json::object();
  const CommandLine line = train_command_line(options);
  for (const CommandLine::Flag& flag : line.flags()) {
    if (!flag.details.in_config) continue;
    Json value = setting_to_json(flag);
    if (value.is_null()) continue;  // an optional flag without a value
    if (flag.details.value == "LIST") value = split_list(value.get<std::string>());
    settings[flag.name] = std::move(value);
  }
  return settings;
}

/// Returns how to call a program of this directory: by its name if a shell finds it under that name, else by its path.
std::string command_of(const std::string& name) {
  std::error_code error;
  const fs::path own = fs::read_symlink("/proc/self/exe", error).parent_path() / name;
  if (error || !fs::exists(own, error)) return name;
  const char* const path = std::getenv("PATH");
  std::istringstream directories(path == nullptr ? "" : path);
  for (std::string directory; std::getline(directories, directory, ':');)
    if (fs::exists(fs::path(directory) / name, error)) return name;
  const std::string relative = fs::proximate(own, error).string();
  return error || relative.starts_with("..") ? own.string() : relative;
}

}  // namespace

Reporter::Reporter(const std::filesystem::path& log, std::optional<std::int64_t> resume_step,
                   const Setup& setup, const Trainer& trainer, const Job& job)
    : log_(log, resume_step, trainer.state().train_seconds),
      split_(setup.data.validation.size() > 0 ? "validation" : "test"),
      progress_(progress_options(setup, trainer, job)),
      directory_(log.parent_path()),
      classes_(setup.data.classes),
      steps_per_epoch_(trainer.steps_per_epoch()),
      steps_per_evaluation_(*setup.options.eval_every * steps_per_epoch_),
      total_steps_(trainer.total_steps()) {}

void Reporter::start(const Setup& setup, const Trainer& trainer, const Job& job) {
  std::vector<std::string> hosts;  // by node number
  for (const dist::RankInfo& rank : job.all())
    if (rank.node == static_cast<int>(hosts.size())) hosts.push_back(rank.host);
  log_.write("start", {{"schema", kLogSchema},
                       {"version", kVersion},
                       {"cpu_level", cpu_level()},
                       {"step", trainer.state().step},
                       {"total_steps", trainer.total_steps()},
                       {"steps_per_epoch", trainer.steps_per_epoch()},
                       {"config", settings_to_json(setup.options)},
                       {"hosts", hosts},
                       {"devices", job.devices()},
                       {"world_size", job.info().world_size},
                       {"ranks", job.describe()},
                       {"model_parameters", setup.model.parameter_count()},
                       {"train_images", setup.data.train.size()},
                       {"validation_images", setup.data.validation.size()},
                       {"test_images", setup.data.test.size()}});
  if (!log_.is_locked())
    warn("the file system of --out has no locks: nothing prevents a second training into this directory",
         trainer.state().step);
}

void Reporter::warn(const std::string& text, std::int64_t step) {
  log_.write("warning", {{"step", step}, {"message", text}});
  progress_.line("warning: " + text);
}

TrainerCallbacks Reporter::callbacks() {
  TrainerCallbacks callbacks;
  callbacks.on_step = [this](const StepReport& report) { on_step(report); };
  callbacks.on_epoch = [this](const training::EpochResult& report) { on_epoch(report); };
  callbacks.on_evaluation = [this](std::int64_t step, const Evaluation& evaluation, bool is_best) {
    on_evaluation(step, evaluation, is_best);
  };
  callbacks.on_warning = [this](std::int64_t step, const std::string& text) { warn(text, step); };
  callbacks.on_profile = [this](const std::string& text) { progress_.line(text); };
  callbacks.on_save = [this](const SaveReport& save) {
    log_.write("save", {{"step", save.step},
                        {"path", save.path.string()},
                        {"stall_ms", save.stall_ms},
                        {"write_ms", save.write_ms}});
  };
  callbacks.on_exception = [this](std::int64_t step, const std::exception& error) {
    log_.write("error", {{"step", step}, {"message", error.what()}});
  };
  callbacks.on_evaluation_progress = [this](std::int64_t done, std::int64_t count) {
    progress_.evaluating(done, count);
  };
  return callbacks;
}

void Reporter::stopped(int signal, std::int64_t step) {
  progress_.line(fmt::format(
      "stopped by signal {} after step {}; checkpoint saved, continue with --resume auto", signal, step));
}

void Reporter::result(const Json& result) { log_.write("result", result); }

void Reporter::on_step(const StepReport& report) {
  if (report.measured) {
    const StepMeasurements& measured = *report.measured;
    Json step = {{"step", report.step},
                 {"epoch", report.epoch},
                 {"samples", report.samples},
                 {"loss", measured.loss},
                 {"average_loss", measured.average_loss},
                 {"lr", report.lr},
                 {"images_per_second", measured.images_per_second},
                 {"step_ms", measured.step_ms},
                 {"data_ms", measured.data_ms},
                 {"memory_bytes", measured.memory_bytes}};
    if (measured.comm_ms) step["comm_ms"] = *measured.comm_ms;
    if (measured.scale) {
      step["scale"] = measured.scale->scale;
      step["skipped"] = measured.scale->skipped;
    }
    log_.write("step", step);
  }
  progress_.step(report);
}

void Reporter::on_epoch(const training::EpochResult& report) {
  Json epoch = {
      {"step", report.step}, {"epoch", report.epoch}, {"samples", report.samples}, {"loss", report.loss}};
  if (report.accuracy) epoch["accuracy"] = *report.accuracy;
  log_.write("epoch", epoch);
  last_epoch_ = report;
  // The line of an evaluation has the accuracy too.
  const bool is_evaluated =
      report.step == total_steps_ || (steps_per_evaluation_ > 0 && report.step % steps_per_evaluation_ == 0);
  if (report.accuracy && !is_evaluated && steps_per_epoch_ > 1)
    progress_.note(fmt::format("epoch {}: training accuracy {:.2f}%, loss {:.4f}", report.epoch + 1,
                               *report.accuracy * 100, report.loss));
}

void Reporter::on_evaluation(std::int64_t step, const Evaluation& evaluation, bool is_best) {
  const std::int64_t epoch = std::max<std::int64_t>(step - 1, 0) / steps_per_epoch_;
  log_.write("eval", {{"step", step},
                      {"epoch", epoch},
                      {"split", split_},
                      {"loss", evaluation.loss},
                      {"accuracy", evaluation.accuracy},
                      {"count", evaluation.count},
                      {"best", is_best}});
  std::string text = fmt::format("evaluation at step {}: {} accuracy {:.2f}%, loss {:.4f}{}", step, split_,
                                 evaluation.accuracy * 100, evaluation.loss, is_best ? " (best)" : "");
  if (last_epoch_ && last_epoch_->step == step && last_epoch_->accuracy)
    text += fmt::format("; training accuracy {:.2f}%", *last_epoch_->accuracy * 100);
  progress_.evaluated(evaluation.accuracy, text);
  if (is_best) write_evaluation(directory_, step, evaluation, classes_);
}

Json result_of(const Setup& setup, const Trainer& trainer, const Job& job) {
  const TrainingState state = trainer.state();
  const std::string split = setup.data.validation.size() > 0 ? "validation" : "test";
  Json result = {{split + "_accuracy", state.evaluated->accuracy},
                 {split + "_loss", state.evaluated->loss},
                 {"best_accuracy", state.stopping.best->accuracy},
                 {"best_step", state.stopping.best->step},
                 {"train_seconds", state.train_seconds},
                 {"images_per_second", static_cast<double>(state.samples) / state.train_seconds},
                 {"steps", state.step},
                 {"samples", state.samples},
                 {"world_size", job.info().world_size},
                 {"optimizer_bytes", trainer.optimizer_bytes()},
                 {"gradient_bytes", trainer.gradient_bytes()},
                 {"parameters_hash", io::parameters_hash(setup.model.root())}};
  if (setup.initialization_seconds) result["initialization_seconds"] = *setup.initialization_seconds;
  if (setup.options.patience > 0)
    result["stopped_early"] = trainer.is_out_of_patience() && state.step < trainer.total_steps();
  return result;
}

void print_result(const Json& result, const std::string& out, const std::string& program) {
  const std::string predict = program == "convoy-train" ? command_of("convoy-predict") : program + " predict";
  const auto percent = [&](const char* key) {
    return fmt::format("{:.2f}%", result[key].get<double>() * 100);
  };
  const std::string best =
      fmt::format(" (best {} at step {})", percent("best_accuracy"), result["best_step"].get<std::int64_t>());
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
