#include "convoy/apps/programs/repetitions.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
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

/// Returns "93.95% ± 0.04%".
std::string percent_of(const Json& summary) {
  return fmt::format("{:.2f}% ± {:.2f}%", summary["mean"].get<double>() * 100,
                     summary["standard_error"].get<double>() * 100);
}

}  // namespace

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
  if (o.repeat == 1) return;
  check(o.seed <= std::numeric_limits<std::int64_t>::max() - o.repeat,
        "--seed {}: found --repeat {}, expected a smaller seed", o.seed, o.repeat);
  check(o.resume.empty() || o.resume == "auto", "--resume {}: found --repeat {}, expected auto", o.resume,
        o.repeat);
  for (const auto& [flag, is_given] :
       {std::pair("trace", !o.trace.empty()), std::pair("dry-run", o.dry_run),
        std::pair("print-config", o.print_config), std::pair("summary", o.summary)})
    check(!is_given, "--{}: found --repeat {}, expected one of the two", flag, o.repeat);
}

std::vector<TrainOptions> repetitions_of(const TrainOptions& options) {
  std::vector<TrainOptions> all(static_cast<std::size_t>(options.repeat), options);
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i].seed = options.seed + static_cast<std::int64_t>(i);
    all[i].out = (fs::path(*options.out) / fmt::format("seed-{}", all[i].seed)).string();
  }
  return all;
}

void check_repetitions(const TrainOptions& options, const std::vector<TrainOptions>& repetitions) {
  std::error_code ignored;
  check(!fs::exists(fs::path(*options.out) / "log.jsonl", ignored),
        "--repeat {}: --out {} contains a single training; use another directory", options.repeat,
        *options.out);
  for (const TrainOptions& each : repetitions) const RunDirectory checked(each);
}

void report_repetitions(const TrainOptions& options, const std::vector<TrainOptions>& repetitions) {
  std::vector<Json> results;
  Json runs = Json::array();
  for (const TrainOptions& each : repetitions) {
    const std::optional<Json> result = read_result(fs::path(*each.out) / "log.jsonl");
    check(result.has_value(), "--repeat {}: {} has no result", options.repeat, *each.out);
    runs.push_back({{"seed", each.seed}, {"directory", fs::path(*each.out).filename().string()}});
    results.push_back(*result);
  }
  Json file{{"runs", runs}};
  for (const char* name :
       {"test_accuracy", "tta_accuracy", "validation_accuracy", "best_accuracy", "train_seconds"}) {
    std::vector<double> values;
    for (const Json& result : results)
      if (result.contains(name)) values.push_back(result[name].get<double>());
    if (values.size() != results.size()) continue;
    const auto [mean, deviation, error] = mean_with_error(values);
    file[name] = {
        {"values", values}, {"mean", mean}, {"standard_deviation", deviation}, {"standard_error", error}};
  }
  io::write_file_atomically(fs::path(*options.out) / "repeat.json", json_text(file, 1) + "\n");
  const std::string views = file.contains("tta_accuracy") ? fmt::format(", averaged over six views {}",
                                                                        percent_of(file["tta_accuracy"]))
                                                          : "";
  fmt::print("test accuracy {}{} (mean ± standard error of {} trainings; standard deviation {:.2f}%)\n",
             percent_of(file["test_accuracy"]), views, results.size(),
             file["test_accuracy"]["standard_deviation"].get<double>() * 100);
  std::fflush(stdout);
}

}  // namespace convoy
