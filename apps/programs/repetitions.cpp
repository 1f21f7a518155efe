#include "convoy/apps/programs/repetitions.h"

#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <utility>

#include "convoy/apps/train/report/reporter.h"
#include "convoy/apps/train/report/run_directory.h"
#include "convoy/engine/io/file.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/json_text.h"

namespace convoy {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

}  // namespace

std::string percent_of(const Json& summary) {
  const std::string mean = fmt::format("{:.2f}%", summary["mean"].get<double>() * 100);
  if (!summary.contains("standard_error")) return mean;
  return fmt::format("{} ± {:.2f}%", mean, summary["standard_error"].get<double>() * 100);
}

MeanWithError mean_with_error(const std::vector<double>& values) {
  check(values.size() >= 2, "mean of {} values, expected at least 2", values.size());
  const auto count = static_cast<double>(values.size());
  MeanWithError result;
  result.mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
  double squares = 0;
  for (const double value : values) squares += (value - result.mean) * (value - result.mean);
  result.standard_deviation = std::sqrt(squares / (count - 1));
  result.standard_error = result.standard_deviation / std::sqrt(count);
  return result;
}

void check_repeat(const TrainOptions& o) {
  if (o.repeat == 1 && !o.sweep) return;
  const std::string several = o.sweep ? "--sweep" : fmt::format("--repeat {}", o.repeat);
  check(o.seed <= std::numeric_limits<std::int64_t>::max() - o.repeat,
        "--seed {}: found --repeat {}, expected a smaller seed", o.seed, o.repeat);
  check(o.resume.empty() || o.resume == "auto", "--resume {}: found {}, expected auto", o.resume, several);
  for (const auto& [flag, is_given] :
       {std::pair("trace", !o.trace.empty()), std::pair("dry-run", o.dry_run),
        std::pair("print-config", o.print_config), std::pair("summary", o.summary)})
    check(!is_given, "--{}: found {}, expected one of the two", flag, several);
}

std::vector<TrainOptions> repetitions_of(const TrainOptions& options) {
  if (options.repeat == 1) return {options};
  std::vector<TrainOptions> all(static_cast<std::size_t>(options.repeat), options);
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i].seed = options.seed + static_cast<std::int64_t>(i);
    all[i].out = (fs::path(*options.out) / fmt::format("seed-{}", all[i].seed)).string();
  }
  return all;
}

void check_repetitions(const TrainOptions& options, const std::vector<TrainOptions>& repetitions) {
  std::error_code ignored;
  check(repetitions.size() == 1 || !fs::exists(fs::path(*options.out) / "log.jsonl", ignored),
        "--repeat {}: --out {} contains a single training; use another directory", options.repeat,
        *options.out);
  for (const TrainOptions& each : repetitions) const RunDirectory checked(each);
}

Json report_repetitions(const TrainOptions& options, const std::vector<TrainOptions>& repetitions) {
  std::vector<Json> results;
  Json file, runs = Json::array();
  for (const TrainOptions& each : repetitions) {
    const std::optional<Json> result = read_result(fs::path(*each.out) / "log.jsonl");
    check(result.has_value(), "--repeat {}: {} has no result", options.repeat, *each.out);
    runs.push_back({{"seed", each.seed}, {"directory", fs::path(*each.out).filename().string()}});
    results.push_back(*result);
  }
  for (const char* name :
       {"test_accuracy", "tta_accuracy", "validation_accuracy", "best_accuracy", "train_seconds"}) {
    std::vector<double> values;
    for (const Json& result : results)
      if (result.contains(name)) values.push_back(result[name].get<double>());
    if (values.size() != results.size()) continue;
    file[name] = {{"values", values}, {"mean", values.front()}};
    if (values.size() == 1) continue;
    const auto [mean, deviation, error] = mean_with_error(values);
    file[name].update(Json{{"mean", mean}, {"standard_deviation", deviation}, {"standard_error", error}});
  }
  if (results.size() == 1) return file;
  Json with_runs{{"runs", runs}};
  with_runs.update(file);
  io::write_file_atomically(fs::path(*options.out) / "repeat.json", json_text(with_runs, 1) + "\n");
  const std::string views = file.contains("tta_accuracy") ? fmt::format(", averaged over six views {}",
                                                                        percent_of(file["tta_accuracy"]))
                                                          : "";
  fmt::print("test accuracy {}{} (mean ± standard error of {} trainings; standard deviation {:.2f}%)\n",
             percent_of(file["test_accuracy"]), views, results.size(),
             file["test_accuracy"]["standard_deviation"].get<double>() * 100);
  std::fflush(stdout);
  return file;
}

}  // namespace convoy
