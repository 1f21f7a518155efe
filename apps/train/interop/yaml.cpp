// Reads YAML with yaml-cpp.
#include <yaml-cpp/yaml.h>

#include <set>

#include "convoy/apps/train/interop/setting.h"
#include "convoy/kernels/base/check.h"

namespace convoy::interop {
namespace {

std::string scalar(const YAML::Node& node) {
  if (node.IsNull()) return "null";
  bool truth = false;
  // "no" is a string in quotes, and false without them. yaml-cpp marks quoted scalars with the tag "!".
  if (node.Tag() != "!" && YAML::convert<bool>::decode(node, truth)) return truth ? "true" : "false";
  return node.Tag() == "!" ? node.Scalar() : normalized_number(node.Scalar());
}

void flatten(const YAML::Node& map, const std::string& prefix, const std::string& file,
             std::vector<Setting>& settings) {
  std::set<std::string> keys;
  for (const auto& entry : map) {
    const std::string key = prefix + entry.first.Scalar();
    const YAML::Node& value = entry.second;
    if (!keys.insert(key).second)
      fail<UsageError>("{}: the key '{}' is there twice, expected once", file, key);
    if (value.IsMap() && value.size() > 0) {
      flatten(value, key + ".", file, settings);
    } else if (value.IsSequence()) {
      std::string text;
      for (const YAML::Node& element : value)
        text.append(text.empty() ? "" : ", ").append(element.IsScalar() ? scalar(element) : "…");
      settings.push_back({key, text});
    } else {
      settings.push_back({key, value.IsMap() ? "{}" : scalar(value)});
    }
  }
}

}  // namespace

std::vector<Setting> read_yaml(const std::filesystem::path& file) {
  const std::string text = read_settings_text(file, "YAML");
  YAML::Node tree;
  try {
    tree = YAML::Load(text);
  } catch (const YAML::Exception& error) {
    fail<UsageError>("{}:{}: expected a YAML file, found an error: {}", file.string(), error.mark.line + 1,
                     error.msg);
  }
  if (!tree.IsMap()) fail<UsageError>("{}: no map of settings, expected `key: value` lines", file.string());
  std::vector<Setting> settings;
  flatten(tree, "", file.string(), settings);
  return settings;
}

}  // namespace convoy::interop
