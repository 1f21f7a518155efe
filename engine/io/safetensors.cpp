#include "convoy/engine/io/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "convoy/engine/io/file.h"
#include "convoy/kernels/base/check.h"

namespace convoy::io {
namespace {

static_assert(std::endian::native == std::endian::little,
              "tensor bytes are written in the byte order of memory");

constexpr std::size_t kLengthBytes = 8;  // size of the length prefix

/// An element type of the format, and the type into which its data are read.
struct FormatType {
  std::string_view name;
  DType dtype;
  std::size_t bytes;  // of an element in the file
};
constexpr FormatType kTypes[] = {{"F64", DType::f64, 8},   {"F32", DType::f32, 4}, {"F16", DType::f16, 2},
                                 {"BF16", DType::bf16, 2}, {"I32", DType::i32, 4}, {"U8", DType::u8, 1},
                                 {"I64", DType::i32, 8}};  // which is only read

/// Returns the row of a type; the end if it is not supported.
const FormatType* find_type(std::string_view name) {
  return std::ranges::find(kTypes, name, &FormatType::name);
}

/// The validated entry of one tensor: [begin, end) is within the data, and end - begin = numel x element
/// size.
struct SafetensorsEntry {
  std::string name;
  std::string dtype;  // the format's name: "F32"
  Shape shape;
  std::uint64_t begin = 0, end = 0;  // bytes from the start of the data
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // in the order of their data, which they cover without gaps
  std::map<std::string, std::string> metadata;
};

/// A handler of parser events that accepts only the structure of a header:
/// {"__metadata__": {string: string…}, name: {"dtype": string, "shape": [n…], "data_offsets": [n, n]}…}.
/// Anything else sets `problem` and stops the parser.
class HeaderHandler final : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::string problem;
  SafetensorsHeader header;

  /// Accepts null metadata, which mean none.
  bool null() override { return (state_ == State::top && key_ == "__metadata__") || reject("null"); }
  bool boolean(bool) override { return reject("a boolean"); }
  bool number_integer(number_integer_t) override { return reject("a negative number"); }
  bool number_float(number_float_t, const string_t&) override {
    return reject("a number that is not a 64-bit integer");
  }
  bool binary(binary_t&) override { return reject("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (state_ != State::shape && state_ != State::offsets) return reject("a number");
    // The format has no limit, but a long list must not take memory.
    if (state_ == State::shape && numbers_.size() == Shape::kMaxRank)
      return fail_with(
          fmt::format("tensor {}: has more than {} axes, expected at most the {} that a Tensor can have",
                      printable(entry_.name), Shape::kMaxRank, Shape::kMaxRank));
    if (state_ == State::offsets && numbers_.size() == 2) return reject("more than 2 numbers");
    numbers_.push_back(value);
    return true;
  }

  bool string(string_t& value) override {
    if (state_ == State::metadata) {
      header.metadata[key_] = std::move(value);
      return true;
    }
    if (state_ != State::tensor || key_ != "dtype") return reject("a string");
    entry_.dtype = std::move(value);
    return true;
  }

  bool start_object(std::size_t) override {
    if (state_ == State::start) {
      state_ = State::top;
    } else if (state_ == State::top) {
      state_ = key_ == "__metadata__" ? State::metadata : State::tensor;
      entry_ = {};
      entry_.name = key_;
      inner_keys_.clear();
    } else {
      return reject("an object");
    }
    return true;
  }

  bool key(string_t& value) override {
    std::set<std::string>& seen = state_ == State::top ? names_ : inner_keys_;
    if (!seen.insert(value).second) return fail_with(fmt::format("{} occurs twice", printable(value)));
    if (state_ == State::tensor && value != "dtype" && value != "shape" && value != "data_offsets")
      return fail_with(fmt::format("tensor {}: unknown key {}", printable(entry_.name), printable(value)));
    key_ = std::move(value);
    return true;
  }

  bool end_object() override {
    if (state_ == State::tensor) {
      if (inner_keys_.size() != 3)
        return fail_with(
            fmt::format("tensor {}: expected dtype, shape and data_offsets", printable(entry_.name)));
      header.entries.push_back(std::move(entry_));
    }
    state_ = state_ == State::top ? State::end : State::top;
    return true;
  }

  bool start_array(std::size_t) override {
    if (state_ != State::tensor || key_ == "dtype") return reject("an array");
    state_ = key_ == "shape" ? State::shape : State::offsets;
    numbers_.clear();
    return true;
  }

  bool end_array() override {
    if (state_ == State::offsets) {
      if (numbers_.size() != 2)
        return fail_with(fmt::format("tensor {}: data_offsets must be two numbers", printable(entry_.name)));
      entry_.begin = numbers_[0];
      entry_.end = numbers_[1];
    } else if (!set_shape()) {
      return fail_with(fmt::format("tensor {}: a size of the shape is too large", printable(entry_.name)));
    }
    state_ = State::tensor;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) override {
    return fail_with(fmt::format("the header is not JSON at byte {}", position));
  }

 private:
  enum class State { start, top, tensor, shape, offsets, metadata, end };

  bool fail_with(std::string text) {
    problem = std::move(text);
    return false;
  }
  bool reject(std::string_view found) {
    return fail_with(fmt::format("the header has {} at {}, which the format does not allow", found,
                                 key_.empty() ? "its start" : printable(key_)));
  }
  bool set_shape() {
    std::vector<std::int64_t> sizes;
    for (const std::uint64_t number : numbers_) {
      if (number > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return false;
      sizes.push_back(static_cast<std::int64_t>(number));
    }
    entry_.shape = Shape(std::span<const std::int64_t>(sizes));
    return true;
  }

  State state_ = State::start;
  std::string key_;                           // the last key
  std::set<std::string> names_, inner_keys_;  // keys seen so far
  std::vector<std::uint64_t> numbers_;        // of the current array
  SafetensorsEntry entry_;
};

/// Returns the size of a tensor in bytes; nullopt if it exceeds the range of int64.
std::optional<std::uint64_t> byte_count(const Shape& shape, std::size_t element_size) {
  std::uint64_t bytes = element_size;
  for (const std::int64_t axis : shape.sizes()) {
    const auto size = static_cast<std::uint64_t>(axis);
    // The limit is int64, the type of Shape::numel().
    if (size != 0 && bytes > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()) / size)
      return std::nullopt;
    bytes *= size;
  }
  return bytes;
}

/// Parses and validates a header, and rejects an invalid one at the first offending character, however deep or
/// long the rest is. `data_bytes` is the size of the file after the header. Throws CheckpointError, which begins
/// with the path, if the header is invalid or does not match the data size.
SafetensorsHeader parse_safetensors_header(const std::filesystem::path& path, std::string_view json,
                                           std::uint64_t data_bytes) {
  HeaderHandler handler;
  // Writers of the format may pad with spaces after the object, but write nothing before it.
  if (json.empty() || json.front() != '{')
    fail<CheckpointError>("{}: not a safetensors file (its header does not begin with '{{')", path.string());
  // The parser would take a NUL for the end of the text.
  if (const std::size_t nul = json.find('\0'); nul != std::string_view::npos)
    fail<CheckpointError>("{}: byte {} of the header is NUL, expected JSON, which spaces may follow",
                          path.string(), nul);
  if (!nlohmann::json::sax_parse(json, &handler))
    fail<CheckpointError>("{}: {}", path.string(), handler.problem);

  SafetensorsHeader header = std::move(handler.header);
  std::ranges::stable_sort(header.entries, {},
                           [](const auto& entry) { return std::pair(entry.begin, entry.end); });
  std::uint64_t next = 0;
  for (const SafetensorsEntry& entry : header.entries) {
    const auto reject = [&](const std::string& what) {
      fail<CheckpointError>("{}: tensor {}: {}", path.string(), printable(entry.name), what);
    };
    const FormatType* const type = find_type(entry.dtype);
    if (type == std::end(kTypes))
      reject(fmt::format("element type {} is not supported", printable(entry.dtype)));
    const std::optional<std::uint64_t> bytes = byte_count(entry.shape, type->bytes);
    if (!bytes) reject(fmt::format("shape {} overflows", entry.shape.text()));
    if (entry.end < entry.begin || entry.end - entry.begin != *bytes)
      reject(fmt::format("data_offsets [{}, {}], expected {} bytes for {} {}", entry.begin, entry.end, *bytes,
                         entry.dtype, entry.shape.text()));
    if (entry.begin != next)
      reject(fmt::format("data begin at byte {}, expected {} ({})", entry.begin, next,
                         entry.begin > next ? "a hole" : "an overlap"));
    if (entry.end > data_bytes)
      reject(fmt::format("data end at byte {}, but the file has {} bytes of data", entry.end, data_bytes));
    next = entry.end;
  }
  if (next != data_bytes)
    fail<CheckpointError>("{}: {} bytes of data, expected {} from the header", path.string(), data_bytes,
                          next);
  return header;
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

/// Throws CheckpointError if a file is no safetensors file by its first bytes, and says what it is.
void refuse_other_formats(const InputFile& file) {
  constexpr std::size_t kMaxStart = 512;
  std::string start(static_cast<std::size_t>(std::min<std::uint64_t>(file.size(), kMaxStart)), '\0');
  file.read(0, std::as_writable_bytes(std::span(start)));
  const std::string_view bytes = start;
  const std::string path = file.path().string();
  // A zip archive, or a pickle of protocol 2 or later.
  if (bytes.starts_with("PK\3\4") ||
      (bytes.size() > 1 && bytes[0] == '\x80' && bytes[1] >= 2 && bytes[1] <= 5))
    fail<CheckpointError>(
        "{}: a file of PyTorch (torch.save), expected safetensors; convert it: python3 -c \"import torch, "
        "safetensors.torch as s; s.save_file(torch.load('{}', map_location='cpu', weights_only=True), "
        "'{}')\"",
        path, path, std::filesystem::path(path).replace_extension(".safetensors").string());
  if (bytes.starts_with("version https://git-lfs"))
    fail<CheckpointError>(
        "{}: a Git LFS pointer, expected the safetensors file that it stands for; fetch it: git lfs pull",
        path);
  if (bytes.starts_with('{')) fail<CheckpointError>("{}: a JSON file, expected safetensors", path);
  if (bytes.starts_with("\x89HDF"))
    fail<CheckpointError>("{}: an HDF5 file (Keras), expected safetensors", path);
  const bool is_text = std::ranges::all_of(
      bytes, [](char c) { return (c >= ' ' && c <= '~') || c == '\n' || c == '\r' || c == '\t'; });
  if (!bytes.empty() && is_text) fail<CheckpointError>("{}: a text file, expected safetensors", path);
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
  if (file.size() < kLengthBytes) {
    refuse_other_formats(file);
    fail<CheckpointError>("{}: {} bytes, too short for a safetensors file", path.string(), file.size());
  }
  file.read(0, std::as_writable_bytes(std::span(&header_bytes, 1)));
  if (header_bytes > kMaxSafetensorsHeader || header_bytes > file.size() - kLengthBytes) {
    refuse_other_formats(file);
    fail<CheckpointError>(
        "{}: not a whole safetensors file: header of {} bytes in a file of {} bytes (expected at most {})",
        path.string(), header_bytes, file.size(), kMaxSafetensorsHeader);
  }
  open->data_start = kLengthBytes + header_bytes;
  {
    std::string json(static_cast<std::size_t>(header_bytes), '\0');
    file.read(kLengthBytes, std::as_writable_bytes(std::span(json)));
    open->header = parse_safetensors_header(path, json, file.size() - open->data_start);
  }
  for (const SafetensorsEntry& entry : open->header.entries)
    tensors_.push_back(
        {entry.name, Tensor::empty(entry.shape, find_type(entry.dtype)->dtype, Device::meta())});
  file_ = open;
}

const std::map<std::string, std::string>& SafetensorsReader::metadata() const {
  return file_->header.metadata;
}

Tensor SafetensorsReader::read(std::size_t index) const {
  const SafetensorsEntry& entry = file_->header.entries[index];
  Tensor tensor = Tensor::empty(entry.shape, tensors_[index].tensor.dtype(), Device::cpu());
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

std::string printable(std::string_view name) {
  constexpr std::size_t kMax = 80;
  std::string text = "\"";
  for (const char c : name.substr(0, kMax))
    text += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  return text + (name.size() > kMax ? "…\"" : "\"");
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
  std::ranges::stable_sort(ordered, std::greater(),
                           [](const NamedTensor* named) { return size_of(named->tensor.dtype()); });

  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::set<std::string_view> names{"__metadata__"};
  std::uint64_t offset = 0;
  for (const NamedTensor* named : ordered) {
    check(names.insert(named->name).second, "safetensors: tensor name {} occurs twice or is reserved",
          printable(named->name));
    const std::uint64_t end = offset + named->tensor.bytes();
    header[named->name] = {
        {"dtype", std::ranges::find(kTypes, named->tensor.dtype(), &FormatType::dtype)->name},
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
