#include "convoy/apps/report/csv.h"

#include <algorithm>

namespace convoy::report {
namespace {

constexpr const char* kLineEnd = "\r\n";

bool is_measurement(const Json& event) {
  const Json& kind = event["event"];
  return kind == "step" || kind == "epoch" || kind == "eval" || kind == "result";
}

/// Returns a value as a field, quoted where necessary.
std::string field_of(const Json& value) {
  if (value.is_null()) return "";
  const std::string text = value.is_string() ? value.get<std::string>()
                                             : value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.find_first_of("\",\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + '"';
}

}  // namespace

std::string to_csv(const std::vector<RunRecord>& runs) {
  std::vector<std::string> columns;
  for (const RunRecord& run : runs)
    for (const Json& event : run.events)
      if (is_measurement(event))
        for (const auto& [name, ignored] : event.items())
          if (std::find(columns.begin(), columns.end(), name) == columns.end()) columns.push_back(name);
  std::string text = "run";
  for (const std::string& column : columns) text.append(",").append(field_of(column));
  text += kLineEnd;
  for (const RunRecord& run : runs)
    for (const Json& event : run.events) {
      if (!is_measurement(event)) continue;
      text += field_of(run.name);
      for (const std::string& column : columns)
        text.append(",").append(field_of(event.value(column, Json())));
      text += kLineEnd;
    }
  return text;
}

}  // namespace convoy::report
