#include "models/models.h"

#include <array>
#include <utility>

#include "models/nearest_name.h"

namespace convoy::models {
namespace {

struct Entry {
  std::string_view name;
  Model (*make)(const Options&);
};

constexpr std::array kModels{
    Entry{"lenet", lenet},       Entry{"resnet20", resnet20}, Entry{"resnet18", resnet18},
    Entry{"resnet34", resnet34}, Entry{"resnet50", resnet50},
};

}  // namespace

Model make(std::string_view name, const Options& options) {
  for (const Entry& entry : kModels) {
    if (entry.name == name) return entry.make(options);
  }
  throw UsageError(unknown_name("model", name, names()));
}

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const Entry& entry : kModels) all.emplace_back(entry.name);
  return all;
}

}  // namespace convoy::models
