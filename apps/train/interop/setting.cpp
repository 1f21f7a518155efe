#include "convoy/apps/train/interop/setting.h"

#include <charconv>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "convoy/kernels/base/check.h"

namespace convoy::interop {
namespace {

using Json = nlohmann::ordered_json;

std::string scalar(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_float()) return fmt::format("{}", value.get<double>());
  return value.dump();
}

std::string list(const Json& values) {
  std::string text;
  for (const Json& value : values)
    text.append(text.empty() ? "" : ", ").append(value.is_structured() ? value.dump() : scalar(value));
  return text;
}

void flatten(const Json& object, const std::string& prefix, std::vector<Setting>& settings) {
  for (const auto& [key, value] : object.items()) {
    if (value.is_object() && !value.empty())
      flatten(value, prefix + key + ".", settings);
    else
      settings.push_back({prefix + key, value.is_array() ? list(value) : scalar(value)});
  }
}

}  // namespace

std::string read_settings_text(const std::filesystem::path& file, const char* format) {
  std::ifstream input(file, std::ios::binary);
  std::ostringstream text;
  if (input && std::filesystem::is_regular_file(file)) text << input.rdbuf();
  if (!input || !std::filesystem::is_regular_file(file))
    fail<UsageError>("{}: cannot be read, expected a {} file", file.string(), format);
  return text.str();
}

std::vector<Setting> read_json(const std::filesystem::path& file) {
  const std::string text = read_settings_text(file, "JSON");
  // The keys that each of the open objects has so far.
  std::vector<std::set<std::string>> open;
  const auto refuse_duplicates = [&](int /*depth*/, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start) open.emplace_back();
    if (event == Json::parse_event_t::object_end) open.pop_back();
    if (event == Json::parse_event_t::key && !open.back().insert(parsed.get<std::string>()).second)
      fail<UsageError>("{}: the key {} is there twice, expected once", file.string(), parsed.dump());
    return true;
  };
  Json tree;
  try {
    tree = Json::parse(text, refuse_duplicates);
  } catch (const Json::exception& error) {
    const std::string what =
        error.what();  // "[json.exception.parse_error.101] parse error at line 2, column 3: …"
    fail<UsageError>("{}: expected a JSON file, found a {}", file.string(), what.substr(what.find("] ") + 2));
  }
  if (!tree.is_object())
    fail<UsageError>("{}: found a JSON {}, expected an object of settings", file.string(), tree.type_name());
  std::vector<Setting> settings;
  flatten(tree, "", settings);
  return settings;
}

std::string normalized_number(const std::string& text) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (text.empty() || error != std::errc() || stop != end || !std::isfinite(value)) return text;
  return fmt::format("{}", value);
}

}  // namespace convoy::interop
