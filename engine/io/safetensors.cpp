#include "convoy/engine/io/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "convoy/engine/io/file.h"
#include "convoy/engine/io/safetensors_header.h"
#include "convoy/kernels/base/check.h"

namespace convoy::io {
namespace {

static_assert(std::endian::native == std::endian::little,
              "tensor bytes are written in the byte order of memory");

constexpr std::size_t kLengthBytes = 8;  // size of the length prefix

std::string_view format_name(DType dtype) {
  switch (dtype) {
    case DType::f64: return "F64";
    case DType::f32: return "F32";
    case DType::f16: return "F16";
    case DType::bf16: return "BF16";
    case DType::i32: return "I32";
    case DType::u8: return "U8";
  }
  return "?";
}

/// Returns the element type into which data of the format's type are read.
DType dtype_named(std::string_view name) {
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16, DType::i32, DType::u8})
    if (format_name(dtype) == name) return dtype;
  return DType::i32;  // I64, the only other type that the header parser accepts
}

/// Reads I64 data into an i32 view through a small buffer.
void read_narrowed(const InputFile& file, const SafetensorsEntry& entry, std::uint64_t data_start,
                   const View& view) {
  std::array<std::int64_t, 4096> buffer;
  auto* out = view.as<std::int32_t>();
  const auto total = static_cast<std::size_t>(view.numel());
  for (std::size_t done = 0; done < total;) {
    const std::span<std::int64_t> piece = std::span(buffer).first(std::min(buffer.size(), total - done));
    file.read(data_start + entry.begin + done * sizeof(std::int64_t), std::as_writable_bytes(piece));
    for (const std::int64_t value : piece) {
      if (value < std::numeric_limits<std::int32_t>::min() ||
          value > std::numeric_limits<std::int32_t>::max())
        fail<CheckpointError>("{}: tensor {}: {} does not fit into 32 bits", file.path().string(),
                              printable(entry.name), value);
      out[done++] = static_cast<std::int32_t>(value);
    }
  }
}

/// Throws CheckpointError if a file that is no safetensors file is one of PyTorch or a JSON file. It has at least 8
/// bytes.
void refuse_other_formats(const InputFile& file) {
  std::array<char, 4> start{};
  file.read(0, std::as_writable_bytes(std::span(start)));
  const std::string_view bytes(start.data(), start.size());
  const std::string path = file.path().string();
  // A zip archive, or a pickle of protocol 2 or later.
  if (bytes.starts_with("PK\3\4") || (bytes[0] == '\x80' && bytes[1] >= 2 && bytes[1] <= 5))
    fail<CheckpointError>(
        "{}: a file of PyTorch (torch.save), expected safetensors; convert it: python3 -c \"import torch, "
        "safetensors.torch as s; s.save_file(torch.load('{}', map_location='cpu', weights_only=True), "
        "'{}')\"",
        path, path, std::filesystem::path(path).replace_extension(".safetensors").string());
  if (bytes[0] == '{') fail<CheckpointError>("{}: a JSON file, expected safetensors", path);
}

}  // namespace

struct SafetensorsReader::OpenFile {
  explicit OpenFile(const std::filesystem::path& path) : file(path) {}
  InputFile file;
  std::uint64_t data_start = 0;
  SafetensorsHeader header;
};

SafetensorsReader::SafetensorsReader(const std::filesystem::path& path) {
  const auto open = std::make_shared<OpenFile>(path);
  const InputFile& file = open->file;
  std::uint64_t header_bytes = 0;
  if (file.size() < kLengthBytes)
    fail<CheckpointError>("{}: {} bytes, too short for a safetensors file", path.string(), file.size());
  file.read(0, std::as_writable_bytes(std::span(&header_bytes, 1)));
  if (header_bytes > kMaxSafetensorsHeader || header_bytes > file.size() - kLengthBytes) {
    refuse_other_formats(file);
    fail<CheckpointError>("{}: header of {} bytes in a file of {} bytes (expected at most {})", path.string(),
                          header_bytes, file.size(), kMaxSafetensorsHeader);
  }
  open->data_start = kLengthBytes + header_bytes;
  {
    std::string json(static_cast<std::size_t>(header_bytes), '\0');
    file.read(kLengthBytes, std::as_writable_bytes(std::span(json)));
    open->header = parse_safetensors_header(path, json, file.size() - open->data_start);
  }
  for (const SafetensorsEntry& entry : open->header.entries)
    tensors_.push_back({entry.name, Tensor::empty(entry.shape, dtype_named(entry.dtype), Device::meta())});
  file_ = open;
}

const std::map<std::string, std::string>& SafetensorsReader::metadata() const {
  return file_->header.metadata;
}

Tensor SafetensorsReader::read(std::size_t index) const {
  const SafetensorsEntry& entry = file_->header.entries[index];
  Tensor tensor = Tensor::empty(entry.shape, dtype_named(entry.dtype), Device::cpu());
  const View view = tensor.view();
  if (entry.dtype == "I64")
    read_narrowed(file_->file, entry, file_->data_start, view);
  else
    file_->file.read(file_->data_start + entry.begin, std::span(view.as<std::byte>(), tensor.bytes()));
  return tensor;
}

Tensor SafetensorsReader::map(std::size_t index) const {
  const SafetensorsEntry& entry = file_->header.entries[index];
  const NamedTensor& named = tensors_[index];
  const std::uint64_t offset = file_->data_start + entry.begin;
  if (entry.dtype == "I64" || offset % size_of(named.tensor.dtype()) != 0)
    fail<CheckpointError>("{}: tensor {}: {} at byte {} cannot be mapped, expected a multiple of its size",
                          file_->file.path().string(), printable(entry.name), entry.dtype, offset);
  return Tensor::from_memory(file_->file.map(offset, named.tensor.bytes()), entry.shape, named.tensor.dtype(),
                             Device::cpu());
}

SafetensorsFile read_safetensors(const std::filesystem::path& path, const DeviceContext& device) {
  const SafetensorsReader reader(path);
  SafetensorsFile result{.tensors = reader.tensors(), .metadata = reader.metadata()};
  for (std::size_t i = 0; i < result.tensors.size(); ++i)
    result.tensors[i].tensor = reader.read(i).to(device);
  return result;
}

SafetensorsLayout lay_out_safetensors(const std::vector<NamedTensor>& tensors,
                                      const std::map<std::string, std::string>& metadata,
                                      std::size_t alignment) {
  std::vector<const NamedTensor*> ordered;
  for (const NamedTensor& named : tensors) ordered.push_back(&named);
  std::stable_sort(ordered.begin(), ordered.end(), [](const NamedTensor* a, const NamedTensor* b) {
    return size_of(a->tensor.dtype()) > size_of(b->tensor.dtype());
  });

  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::set<std::string_view> names{"__metadata__"};
  std::uint64_t offset = 0;
  for (const NamedTensor* named : ordered) {
    check(names.insert(named->name).second, "safetensors: tensor name {} occurs twice or is reserved",
          printable(named->name));
    const std::uint64_t end = offset + named->tensor.bytes();
    header[named->name] = {{"dtype", format_name(named->tensor.dtype())},
                           {"shape", named->tensor.shape().sizes()},
                           {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string json;
  try {
    json = header.dump();
  } catch (const nlohmann::json::exception&) {
    fail<UsageError>("safetensors: a tensor name or the metadata are not valid UTF-8");
  }
  json.append((alignment - (kLengthBytes + json.size()) % alignment) % alignment, ' ');
  check(json.size() <= kMaxSafetensorsHeader, "safetensors: header of {} bytes, expected at most {}",
        json.size(), kMaxSafetensorsHeader);

  const auto header_bytes = static_cast<std::uint64_t>(json.size());
  SafetensorsLayout layout;
  layout.header.assign(reinterpret_cast<const char*>(&header_bytes), kLengthBytes);
  layout.header += json;
  const DeviceContext cpu = Device::cpu();
  for (const NamedTensor* named : ordered) layout.data.push_back(named->tensor.to(cpu));
  return layout;
}

std::vector<std::string_view> SafetensorsLayout::pieces() const {
  std::vector<std::string_view> all = {header};
  for (const Tensor& tensor : data)
    if (tensor.numel() > 0) all.emplace_back(static_cast<const char*>(tensor.view().data), tensor.bytes());
  return all;
}

std::size_t SafetensorsLayout::size() const {
  std::size_t bytes = header.size();
  for (const Tensor& tensor : data) bytes += tensor.bytes();
  return bytes;
}

std::string encode_safetensors(const std::vector<NamedTensor>& tensors,
                               const std::map<std::string, std::string>& metadata) {
  const SafetensorsLayout layout = lay_out_safetensors(tensors, metadata);
  std::string bytes;
  bytes.reserve(layout.size());
  for (const std::string_view piece : layout.pieces()) bytes += piece;
  return bytes;
}

}  // namespace convoy::io
