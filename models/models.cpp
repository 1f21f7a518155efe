#include "convoy/models/models.h"

#include <array>
#include <utility>

#include "convoy/kernels/base/nearest_name.h"

namespace convoy::models {
namespace {

// An entry of the table of models.
struct Entry {
  std::string_view name;
  Model (*make)(const Options&);
  bool has_batch_norm = true;
};

constexpr std::array kModels{
    Entry{"lenet", lenet, false}, Entry{"resnet20", resnet20}, Entry{"resnet18", resnet18},
    Entry{"resnet34", resnet34},  Entry{"resnet50", resnet50},
};

const Entry& entry_of(std::string_view name) {
  for (const Entry& entry : kModels)
    if (entry.name == name) return entry;
  throw UsageError(unknown_name("model", name, names()));
}

}  // namespace

Model make(std::string_view name, const Options& options) { return entry_of(name).make(options); }

bool has_batch_norm(std::string_view name) { return entry_of(name).has_batch_norm; }

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const Entry& entry : kModels) all.emplace_back(entry.name);
  return all;
}

}  // namespace convoy::models
