#include "convoy/apps/train/tuning/initial_parameters.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <ranges>
#include <string_view>
#include <vector>

#include "convoy/apps/common/text.h"
#include "convoy/apps/data/input_spec.h"
#include "convoy/datasets/download/download.h"
#include "convoy/engine/io/manifest.h"
#include "convoy/engine/io/safetensors.h"
#include "convoy/engine/io/state_dict.h"
#include "convoy/kernels/base/check.h"

namespace convoy {
namespace {

namespace fs = std::filesystem;

/// A row of the table of weights. torchvision names a file by the first digits of its SHA-256.
struct Pretrained {
  std::string_view name, file, digits;
};
constexpr std::array kPretrained{Pretrained{"resnet18-imagenet", "resnet18-f37072fd.pth", "f37072fd"},
                                 Pretrained{"resnet34-imagenet", "resnet34-b627a593.pth", "b627a593"},
                                 Pretrained{"resnet50-imagenet", "resnet50-11ad3fa6.pth", "11ad3fa6"}};

/// Returns the hash of the floating-point tensors of a file, in the order of their names.
std::string content_hash(const io::SafetensorsReader& file) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < file.tensors().size(); ++i)
    if (is_floating(file.tensors()[i].tensor.dtype())) order.push_back(i);
  std::ranges::sort(order, {}, [&](std::size_t i) { return std::string_view(file.tensors()[i].name); });
  std::vector<Tensor> tensors;
  std::vector<std::string_view> bytes;
  for (const std::size_t i : order) {
    tensors.push_back(file.read(i));
    bytes.emplace_back(tensors.back().view().as<char>(), tensors.back().bytes());
  }
  return data::sha256_of(bytes);
}

void verify(const fs::path& file, const Pretrained& weights) {
  const io::SafetensorsReader reader(file);
  const auto value = [&](const char* key) { return value_at(reader.metadata(), key, "none"); };
  const std::string source = value("source_sha256"), expected = value("content_sha256");
  if (!source.starts_with(weights.digits))
    fail<CheckpointError>(
        "{}: found source_sha256 {} in its metadata, expected {}…, that of {}; remove it, and convert again",
        file.string(), io::printable(source), weights.digits, weights.file);
  if (const std::string content = content_hash(reader); content != expected)
    fail<CheckpointError>(
        "{}: found tensors of SHA-256 {}, expected {}, as its metadata say; remove it, and convert again",
        file.string(), content, io::printable(expected));
}

/// Returns the row of the weights of this name; null if there are none, or if a file or a directory in the working
/// directory has the name.
const Pretrained* find_weights(const std::string& name) {
  const auto* const found = std::ranges::find(kPretrained, name, &Pretrained::name);
  std::error_code ignored;
  return found == kPretrained.end() || fs::exists(name, ignored) ? nullptr : found;
}

/// Returns the file with the weights `name`, models/NAME.safetensors in the cache of downloads
/// (data::cache_directory()), whether it exists or not.
fs::path pretrained_file(const std::string& name) {
  return data::cache_directory() / "models" / (name + ".safetensors");
}

/// Throws CheckpointError unless the file of the weights `name` is a conversion of torchvision's file: its metadata
/// `source_sha256` begins with the eight digits in the name of that file, and `content_sha256` is the SHA-256 of its
/// floating-point tensors, in the order of their names. If there is no file, downloads it from $CONVOY_MODELS_URL, if that
/// is set, and else throws a CheckpointError that says where torchvision's file is and which command converts it. Does
/// nothing for another name.
void check_pretrained(const std::string& name) {
  const Pretrained* const weights = find_weights(name);
  if (weights == nullptr) return;
  const fs::path file = pretrained_file(name);
  std::error_code error;
  const bool exists = fs::exists(file, error);
  if (!exists) {
    if (const char* const server = std::getenv("CONVOY_MODELS_URL"); server != nullptr && *server != '\0') {
      fmt::print(stderr, "downloading {} from {}\n", file.filename().string(), server);
      const std::string file_name = file.filename().string();
      data::download({{.url = fmt::format("{}/{}", server, file_name), .name = file_name, .md5 = {}}},
                     file.parent_path());
    } else {
      fail<CheckpointError>(
          "--init-from {}: found no {}; download https://download.pytorch.org/models/{}, and convert it once with: mkdir -p {} "
          "&& python3 -c \"import torch, hashlib, safetensors.torch as s; f = '{}'; h = lambda b: "
          "hashlib.sha256(b).hexdigest(); t = torch.load(f, map_location='cpu', weights_only=True); s.save_file(t, '{}', "
          "{{'source_sha256': h(open(f, 'rb').read()), 'content_sha256': h(b''.join(t[k].detach().numpy().tobytes() for k in "
          "sorted(t) if t[k].is_floating_point()))}})\"",
          name, file.string(), weights->file, file.parent_path().string(), weights->file, file.string());
    }
  }
  try {
    verify(file, *weights);
  } catch (const CheckpointError&) {
    if (!exists) fs::remove(file, error);  // the download
    throw;
  }
}

fs::path file_of(const std::string& source) {
  if (find_weights(source) != nullptr) return pretrained_file(source);
  std::error_code ignored;
  return fs::is_directory(source, ignored) ? find_checkpoint(source, "--init-from").path / io::kModelFile
                                           : fs::path(source);
}

void remove_prefixes(std::vector<io::NamedTensor>& tensors) {
  // DistributedDataParallel(torch.compile(model)) and the reverse have both.
  for (const std::string_view prefix : {"module.", "_orig_mod.", "module."}) {
    const bool has_prefix = std::ranges::all_of(
        tensors, [&](const io::NamedTensor& each) { return each.name.starts_with(prefix); });
    if (has_prefix)
      for (io::NamedTensor& each : tensors) each.name.erase(0, prefix.size());
  }
}

const io::NamedTensor* find(const std::vector<io::NamedTensor>& tensors, const std::string& name) {
  const auto found = std::ranges::find(tensors, name, &io::NamedTensor::name);
  return found == tensors.end() ? nullptr : &*found;
}

/// Returns whether two tensors have the same shape after the first axis, which is that of the classes.
bool match_after_classes(const Shape& a, const Shape& b) {
  return a.rank() == b.rank() &&
         std::ranges::equal(a.sizes() | std::views::drop(1), b.sizes() | std::views::drop(1));
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
  const fs::path file = file_of(source), checkpoint = file.parent_path();
  std::error_code ignored;
  if (file.filename() != io::kModelFile || !fs::exists(checkpoint / io::kManifestFile, ignored))
    return "auto";
  return value_at(stored_flags(io::read_manifest(checkpoint)), "activation", "auto");
}

}  // namespace convoy
