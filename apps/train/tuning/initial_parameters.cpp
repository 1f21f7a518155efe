#include "convoy/apps/train/tuning/initial_parameters.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "convoy/apps/data/input_spec.h"
#include "convoy/apps/train/tuning/pretrained.h"
#include "convoy/engine/io/manifest.h"
#include "convoy/engine/io/safetensors.h"
#include "convoy/engine/io/state_dict.h"
#include "convoy/kernels/base/check.h"

namespace convoy {
namespace {

std::filesystem::path file_of(const std::string& source) {
  if (const auto file = pretrained_file(source)) return *file;
  std::error_code ignored;
  return std::filesystem::is_directory(source, ignored)
             ? find_checkpoint(source, "--init-from").path / io::kModelFile
             : std::filesystem::path(source);
}

void remove_prefixes(std::vector<io::NamedTensor>& tensors) {
  // DistributedDataParallel(torch.compile(model)) and the reverse have both.
  for (const std::string_view prefix : {"module.", "_orig_mod.", "module."}) {
    const bool has_prefix = std::all_of(tensors.begin(), tensors.end(), [&](const io::NamedTensor& each) {
      return each.name.starts_with(prefix);
    });
    if (has_prefix)
      for (io::NamedTensor& each : tensors) each.name.erase(0, prefix.size());
  }
}

const io::NamedTensor* find(const std::vector<io::NamedTensor>& tensors, const std::string& name) {
  const auto found = std::find_if(tensors.begin(), tensors.end(),
                                  [&](const io::NamedTensor& each) { return each.name == name; });
  return found == tensors.end() ? nullptr : &*found;
}

/// Returns whether two tensors have the same shape after the first axis, which is that of the classes.
bool match_after_classes(const Shape& a, const Shape& b) {
  if (a.rank() != b.rank()) return false;
  for (int axis = 1; axis < a.rank(); ++axis)
    if (a[axis] != b[axis]) return false;
  return true;
}

/// What a file has of the last layer of a model.
struct FileHead {
  bool is_complete = true;              // all tensors, for the classes of the model
  bool fits = true;                     // but for the number of classes
  std::optional<std::int64_t> classes;  // of the first tensor in the file; nullopt: it has none
};

FileHead compare_heads(const std::vector<io::NamedTensor>& tensors,
                       const std::vector<io::NamedTensor>& head) {
  FileHead result;
  for (const io::NamedTensor& own : head) {
    const io::NamedTensor* const given = find(tensors, own.name);
    if (given == nullptr || given->tensor.shape() != own.tensor.shape()) result.is_complete = false;
    if (given == nullptr) continue;
    if (!match_after_classes(given->tensor.shape(), own.tensor.shape())) result.fits = false;
    if (!result.classes && given->tensor.shape().rank() > 0) result.classes = given->tensor.size(0);
  }
  return result;
}

}  // namespace

std::string head_of(const models::Model& model) {
  const std::string last = model.parameters().back().name;
  return last.substr(0, last.rfind('.'));
}

void check_initial_parameters(const std::string& source) {
  check_pretrained(source);
  const io::SafetensorsReader readable(file_of(source));
}

std::string load_initial_parameters(const models::Model& model, const std::string& source) {
  std::vector<io::NamedTensor> tensors = io::read_safetensors(file_of(source), Device::cpu()).tensors;
  remove_prefixes(tensors);
  const std::string prefix = head_of(model) + ".";
  const auto is_of_head = [&](const io::NamedTensor& each) { return each.name.starts_with(prefix); };
  std::vector<io::NamedTensor> head = io::state_dict(model.root());
  std::erase_if(head, [&](const io::NamedTensor& each) { return !is_of_head(each); });

  std::string description;
  if (const FileHead of_file = compare_heads(tensors, head); !of_file.is_complete && of_file.fits) {
    std::vector<std::string> names;
    for (const io::NamedTensor& each : head) names.push_back(each.name);
    description = fmt::format("{}: new, {} classes (file has {})", fmt::join(names, ", "), model.classes(),
                              of_file.classes ? std::to_string(*of_file.classes) : "none");
    std::erase_if(tensors, is_of_head);
    tensors.insert(tensors.end(), head.begin(), head.end());
  }
  io::load_state_dict(model.root(), tensors, source);
  return description;
}

std::string stem_of_initial_parameters(const std::string& source) {
  std::vector<io::NamedTensor> tensors = io::SafetensorsReader(file_of(source)).tensors();
  remove_prefixes(tensors);
  const io::NamedTensor* const filters = find(tensors, "conv1.weight");
  if (filters == nullptr || filters->tensor.shape().rank() != 4) return "auto";
  return filters->tensor.size(3) == 7 ? "imagenet" : "cifar";
}

std::string activation_of_initial_parameters(const std::string& source) {
  const std::filesystem::path file = file_of(source), checkpoint = file.parent_path();
  std::error_code ignored;
  if (file.filename() != io::kModelFile || !std::filesystem::exists(checkpoint / io::kManifestFile, ignored))
    return "auto";
  const std::map<std::string, std::string> flags = stored_flags(io::read_manifest(checkpoint));
  const auto found = flags.find("activation");
  return found == flags.end() ? "auto" : found->second;
}

}  // namespace convoy
