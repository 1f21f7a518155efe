#include "convoy/apps/programs/sweep.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <set>

#include "convoy/apps/common/text.h"
#include "convoy/apps/flags/flag_names.h"
#include "convoy/apps/report/page.h"
#include "convoy/apps/train/report/reporter.h"
#include "convoy/apps/train/report/run_directory.h"
#include "convoy/engine/io/file.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/json_text.h"

namespace convoy {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

/// Returns the values and their mean, and of several ones also the standard deviation, with n - 1 in the denominator, and
/// the standard error of the mean: the deviation over the square root of n.
Json mean_of(const std::vector<double>& values) {
  const auto count = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
  Json result{{"values", values}, {"mean", mean}};
  if (values.size() == 1) return result;
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  const double deviation = std::sqrt(squares / (count - 1));
  result["standard_deviation"] = deviation;
  result["standard_error"] = deviation / std::sqrt(count);
  return result;
}

/// Returns "93.95% ± 0.04%" for a result of mean_of(), without the error for one value.
std::string percent_of(const Json& summary) {
  const std::string mean = fmt::format("{:.2f}%", summary["mean"].get<double>() * 100);
  if (!summary.contains("standard_error")) return mean;
  return fmt::format("{} ± {:.2f}%", mean, summary["standard_error"].get<double>() * 100);
}

/// Returns the values, each as `prefix`, the flag, `infix` and the value, with `separator` between them.
std::string join(const SweptValues& values, const char* prefix, const char* infix, const char* separator) {
  std::vector<std::string> parts;
  for (const auto& [name, value] : values) parts.push_back(prefix + name + infix + value);
  return fmt::format("{}", fmt::join(parts, separator));
}

/// Prints the results as columns, and the combination with the highest accuracy: of the validation images, if there are.
void print_sweep(const std::vector<SweptTraining>& trainings, const std::vector<Json>& results) {
  std::vector<std::pair<std::string, std::string>> columns = {
      {"validation_accuracy", "validation accuracy"},
      {"test_accuracy", "test accuracy"},
      {"tta_accuracy", "six views"}};  // of results, with their titles
  std::erase_if(columns, [&](const auto& column) {
    return std::ranges::none_of(results, [&](const Json& each) { return each.contains(column.first); });
  });
  std::vector<std::vector<std::string>> rows(1);
  for (const auto& [name, value] : trainings.front().values) rows[0].push_back(name);
  for (const auto& [key, title] : columns) rows[0].push_back(title);
  const SweptTraining* best = nullptr;
  double highest = -1;
  for (std::size_t i = 0; i < trainings.size(); ++i) {
    std::vector<std::string>& row = rows.emplace_back();
    for (const auto& [name, value] : trainings[i].values) row.push_back(value);
    for (const auto& [key, title] : columns) {
      const auto found = results[i].find(key);
      row.push_back(found != results[i].end()   ? percent_of(*found)
                    : trainings[i].diverged > 0 ? "diverged"
                                                : "-");
      if (key != columns[0].first || found == results[i].end() || (*found)["mean"].get<double>() <= highest)
        continue;
      highest = (*found)["mean"].get<double>();
      best = &trainings[i];
    }
  }
  fmt::print("\n");
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const auto longest = [i](const auto& a, const auto& b) { return a[i].size() < b[i].size(); };
      line += fmt::format("  {:<{}}", row[i], (*std::ranges::max_element(rows, longest))[i].size());
    }
    fmt::print("{}\n", line.substr(0, line.find_last_not_of(' ') + 1));
  }
  if (best != nullptr) fmt::print("highest {}: {}\n", columns[0].second, flags_of(best->values));
}

}  // namespace

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
    if (values.size() == results.size()) file[name] = mean_of(values);
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

std::vector<SweptValues> combinations_of(const std::string& sweep) {
  // What the trainings of a sweep share, though it differs between other trainings.
  constexpr std::array kShared{"seed", "dataset", "data", "download", "fallback-shapes", "precision"};
  TrainOptions options;
  const CommandLine line = train_command_line(options);
  std::vector<std::string> known;
  for (const CommandLine::Flag& flag : line.flags())
    if (flag.details.fixed || flag.details.reschedules) known.push_back(flag.name);
  std::erase_if(known, [&](const auto& name) { return std::ranges::find(kShared, name) != kShared.end(); });
  std::vector<SweptValues> all(1);
  for (const std::string& part : split(sweep, ' ')) {
    const std::string name = part.substr(0, part.find('='));
    const std::vector<std::string> values = split(part.substr(std::min(name.size() + 1, part.size())));
    check(name != "seed", "--sweep: found seed, expected --repeat N, which trains with N seeds");
    check(!values.empty() && std::ranges::find(values, std::string()) == values.end(),
          "--sweep: found '{}', expected NAME=VALUE,VALUE,...", part);
    if (std::ranges::find(known, name) == known.end())
      fail<UsageError>("--sweep: found '{}', expected a setting of a training, such as lr or batch-size{}",
                       name, suggestion(name, known, ""));
    std::vector<SweptValues> longer;
    for (const SweptValues& each : all)
      for (const std::string& value : values) longer.emplace_back(each).emplace_back(name, value);
    all = std::move(longer);
  }
  check(!all.front().empty(), "--sweep: found '{}', expected NAME=VALUE,VALUE,...", sweep);
  std::set<std::string> seen;
  for (const auto& [name, value] : all.front())
    check(seen.insert(name).second, "--sweep: found {} twice", name);
  for (const SweptValues& each : all)
    check(seen.insert(directory_of(each)).second, "--sweep: found {} twice", flags_of(each));
  return all;
}

std::string flags_of(const SweptValues& values) { return join(values, "--", " ", " "); }

std::string directory_of(const SweptValues& values) {
  std::string text = join(values, "", "-", "-");
  for (char& c : text)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '-' && c != '+' && c != '.') c = '_';
  return text;
}

void write_sweep(const std::string& out, const std::vector<SweptTraining>& trainings,
                 const std::vector<Json>* results) {
  std::error_code error;
  check(!fs::exists(fs::path(out) / "log.jsonl", error),
        "--sweep: --out {} contains a single training; use another directory", out);
  fs::create_directories(out, error);
  if (error) fail<OutputError>("--out {}: cannot be created: {}", out, error.message());
  Json rows = Json::array();
  for (std::size_t i = 0; i < trainings.size(); ++i) {
    Json& row =
        rows.emplace_back(Json{{"directory", directory_of(trainings[i].values)}, {"flags", Json::object()}});
    for (const auto& [name, value] : trainings[i].values) row["flags"][name] = value;
    if (trainings[i].diverged > 0) row["diverged"] = trainings[i].diverged;
    if (results != nullptr && (*results)[i].is_object()) row.update((*results)[i]);
    row.erase("train_seconds");  // so that a sweep that was stopped and resumed has the same file
  }
  io::write_file_atomically(fs::path(out) / "sweep.json", json_text(Json{{"trainings", rows}}, 1) + "\n");
  if (results == nullptr) return;
  print_sweep(trainings, *results);
  fmt::print("output        {}\n", out);
  if (*report::page_files::kD3 != '\0') {
    const fs::path page = fs::path(out) / "report.html";
    io::write_file_atomically(page,
                              report::make_page(report::read_runs(report::directories_of_runs({out})), 0));
    fmt::print("page          {}\n", page.string());
  }
  std::fflush(stdout);
}

}  // namespace convoy
