#include "tests/apps/trace_rules.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

namespace convoy::testing {

std::vector<std::string> problems_of_trace(const std::string& text) {
  using Value = nlohmann::json;
  const Value trace = Value::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!trace.is_object() || !trace.contains("traceEvents") || !trace["traceEvents"].is_array())
    return {"no object with a list traceEvents"};
  std::vector<std::string> problems;
  if (const Value unit = trace.value("displayTimeUnit", Value("ms")); unit != "ms" && unit != "ns")
    problems.push_back("displayTimeUnit " + unit.dump());

  using Track = std::pair<std::int64_t, std::int64_t>;              // process and thread
  std::map<Track, std::vector<std::pair<double, double>>> ranges;   // begin and end, us
  std::map<std::pair<std::int64_t, std::string>, double> counters;  // the latest time
  std::set<std::int64_t> processes, named_processes;
  static const std::map<std::string, std::string> kMetadata = {{"process_name", "name"},
                                                               {"process_sort_index", "sort_index"},
                                                               {"process_labels", "labels"},
                                                               {"thread_name", "name"},
                                                               {"thread_sort_index", "sort_index"}};
  for (const Value& event : trace["traceEvents"]) {
    const auto expect = [&](bool holds, const char* rule) {
      if (!holds) problems.push_back(rule + (": " + event.dump()));
      return holds;
    };
    const auto has = [&](const char* name, bool (Value::*is_type)() const noexcept) {
      return event.contains(name) && (event[name].*is_type)();
    };
    if (!expect(event.is_object() && has("ph", &Value::is_string), "ph is the kind of event") ||
        !expect(has("pid", &Value::is_number_integer), "pid is an integer") ||
        !expect(has("name", &Value::is_string), "name is text"))
      continue;
    const std::string kind = event["ph"], name = event["name"];
    const std::int64_t process = event["pid"];
    const bool has_thread = has("tid", &Value::is_number_integer);
    const Value arguments = event.value("args", Value::object());
    expect(arguments.is_object(), "args is an object");
    if (kind == "M") {
      const auto found = kMetadata.find(name);
      if (!expect(found != kMetadata.end(), "known metadata")) continue;
      const Value value = arguments.value(found->second, Value());
      expect(found->second == "sort_index" ? value.is_number_integer() : value.is_string(),
             "value of metadata");
      expect(has_thread || name.starts_with("process"), "tid is an integer");
      if (name == "process_name") expect(named_processes.insert(process).second, "one name per process");
      continue;
    }
    if (!expect(has("ts", &Value::is_number) && event["ts"] >= 0, "ts is at least 0")) continue;
    const double begin = event["ts"];
    processes.insert(process);
    if (kind == "X") {
      if (!expect(has_thread, "tid is an integer") ||
          !expect(has("dur", &Value::is_number) && event["dur"] >= 0, "dur is at least 0"))
        continue;
      ranges[{process, event["tid"]}].emplace_back(begin, begin + event["dur"].get<double>());
    } else if (kind == "C") {
      expect(!arguments.empty() && std::all_of(arguments.begin(), arguments.end(),
                                               [](const Value& value) { return value.is_number(); }),
             "values of a counter are numbers");
      const auto [latest, is_first] = counters.try_emplace({process, name}, begin);
      expect(latest->second <= begin, "a counter is in order of time");
      latest->second = begin;
    } else if (kind == "i") {
      const Value scope = event.value("s", Value("t"));
      expect(has_thread, "tid is an integer");
      expect(scope == "g" || scope == "p" || scope == "t", "the scope of an instant is g, p or t");
    } else {
      expect(false, "ph is X, C, i or M");
    }
  }
  for (const std::int64_t process : processes)
    if (!named_processes.contains(process))
      problems.push_back("process " + std::to_string(process) + " has no name");

  constexpr double kRounding = 1e-2;  // us: far above that of doubles, and Perfetto keeps nanoseconds
  for (auto& [row, all] : ranges) {
    std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) {
      return a.first != b.first ? a.first < b.first : a.second > b.second;
    });
    std::vector<double> ends;  // of the ranges around the present one
    for (const auto& [begin, end] : all) {
      while (!ends.empty() && ends.back() <= begin + kRounding) ends.pop_back();
      if (!ends.empty() && end > ends.back() + kRounding)
        problems.push_back("ranges overlap in part at " + std::to_string(begin) + " us in process " +
                           std::to_string(row.first) + ", row " + std::to_string(row.second));
      ends.push_back(end);
    }
  }
  return problems;
}

}  // namespace convoy::testing
