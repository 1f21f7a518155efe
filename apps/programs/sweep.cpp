#include "convoy/apps/programs/sweep.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "convoy/apps/common/text.h"
#include "convoy/apps/flags/flag_names.h"
#include "convoy/apps/programs/repetitions.h"
#include "convoy/apps/report/page.h"
#include "convoy/apps/report/page_files.h"
#include "convoy/engine/io/file.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/json_text.h"

namespace convoy {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

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
    return std::none_of(results.begin(), results.end(),
                        [&](const Json& each) { return each.contains(column.first); });
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
      line +=
          fmt::format("  {:<{}}", row[i], (*std::max_element(rows.begin(), rows.end(), longest))[i].size());
    }
    fmt::print("{}\n", line.substr(0, line.find_last_not_of(' ') + 1));
  }
  if (best != nullptr) fmt::print("highest {}: {}\n", columns[0].second, flags_of(best->values));
}

}  // namespace

std::vector<SweptValues> combinations_of(const std::string& sweep) {
  // What the trainings of a sweep share, though it differs between other trainings.
  constexpr std::array kShared{"seed", "dataset", "data", "download", "fallback-shapes", "precision"};
  TrainOptions options;
  const CommandLine line = train_command_line(options);
  std::vector<std::string> known;
  for (const CommandLine::Flag& flag : line.flags())
    if (flag.details.fixed || flag.details.reschedules) known.push_back(flag.name);
  std::erase_if(known, [&](const auto& name) {
    return std::find(kShared.begin(), kShared.end(), name) != kShared.end();
  });
  std::vector<SweptValues> all(1);
  for (const std::string& part : split(sweep, ' ')) {
    const std::string name = part.substr(0, part.find('='));
    const std::vector<std::string> values = split(part.substr(std::min(name.size() + 1, part.size())));
    check(name != "seed", "--sweep: found seed, expected --repeat N, which trains with N seeds");
    check(!values.empty() && std::find(values.begin(), values.end(), "") == values.end(),
          "--sweep: found '{}', expected NAME=VALUE,VALUE,...", part);
    if (std::find(known.begin(), known.end(), name) == known.end())
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
