#include "convoy/apps/train/tuning/pretrained.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "convoy/datasets/download/download.h"
#include "convoy/engine/io/safetensors.h"
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
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return file.tensors()[a].name < file.tensors()[b].name; });
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
  const auto value = [&](const char* key) {
    const auto found = reader.metadata().find(key);
    return found == reader.metadata().end() ? std::string("none") : found->second;
  };
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

const Pretrained* find_weights(const std::string& name) {
  const auto* const found = std::find_if(kPretrained.begin(), kPretrained.end(),
                                         [&](const Pretrained& each) { return each.name == name; });
  std::error_code ignored;
  return found == kPretrained.end() || fs::exists(name, ignored) ? nullptr : found;
}

}  // namespace

std::optional<fs::path> pretrained_file(const std::string& name) {
  if (find_weights(name) == nullptr) return std::nullopt;
  return data::cache_directory() / "models" / (name + ".safetensors");
}

void check_pretrained(const std::string& name) {
  const Pretrained* const weights = find_weights(name);
  if (weights == nullptr) return;
  const fs::path file = *pretrained_file(name);
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

}  // namespace convoy
