// Reader and writer for the safetensors format: 8 bytes of little-endian header length, a JSON header {name:
// {dtype, shape, data_offsets}}, then the data. Python can read it, and it cannot contain code. The reader
// checks every length before it uses it, and rejects files that violate the format.
//
// Element types: F64, F32, F16, BF16, I32, U8. I64 is read as i32 if every value fits (torchvision's files
// count batches in I64 scalars). Any other type is rejected.
//
// Several threads may read and lay out files at once, each with a device context of its own.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "convoy/engine/tensor/tensor.h"

namespace convoy::io {

/// The maximum header size in bytes, as in the format's reference implementation.
inline constexpr std::uint64_t kMaxSafetensorsHeader = 100'000'000;

/// A tensor of a file.
struct NamedTensor {
  std::string name;  // unique in the file, UTF-8
  Tensor tensor;     // on any device
};

/// The contents of a file.
struct SafetensorsFile {
  std::vector<NamedTensor> tensors;             // in the order of their data
  std::map<std::string, std::string> metadata;  // "__metadata__"
};

/// An open file whose tensors are read one by one. One thread uses an object.
class SafetensorsReader {
 public:
  /// Opens the file and reads its header. Throws CheckpointError with a one-line message that names the file
  /// if it cannot be read or is invalid.
  explicit SafetensorsReader(const std::filesystem::path& path);

  /// Returns the tensors in the order of their data, on the meta device: names, shapes and types.
  const std::vector<NamedTensor>& tensors() const { return tensors_; }
  /// Returns "__metadata__".
  const std::map<std::string, std::string>& metadata() const;
  /// Reads tensors()[index] to host memory. Throws CheckpointError if that fails.
  Tensor read(std::size_t index) const;
  /// Maps tensors()[index] into memory instead, where it must not be written. Processes that map it share the
  /// memory. Throws CheckpointError if that fails, or if its position in the file is not a multiple of its
  /// element size.
  Tensor map(std::size_t index) const;

 private:
  struct OpenFile;
  std::shared_ptr<const OpenFile> file_;
  std::vector<NamedTensor> tensors_;
};

/// Reads all tensors of a file to `device`. Reads each tensor directly into its memory, so the peak memory is
/// about the size of the file. Throws CheckpointError with a one-line message that names the file if it
/// cannot be read or is invalid.
SafetensorsFile read_safetensors(const std::filesystem::path& path, const DeviceContext& device);

/// The contents of a file in memory. Tensors that are on the host already are not copied.
struct SafetensorsLayout {
  std::string header;        // including the length prefix
  std::vector<Tensor> data;  // on the CPU, in the order of the file

  /// Returns all bytes of the file in order. The views are valid as long as this object is.
  std::vector<std::string_view> pieces() const;
  /// Returns the size of the file in bytes.
  std::size_t size() const;
};

/// Lays out a file for write_file_durably(). Tensors may be on any device. The data begin at a multiple of
/// `alignment` bytes (8 or more), and are ordered by decreasing element size, otherwise as given, so that
/// each tensor is aligned to its element size. Throws UsageError if a name occurs twice, is reserved by the
/// format or is not UTF-8, or if the header exceeds 100,000,000 bytes.
SafetensorsLayout lay_out_safetensors(const std::vector<NamedTensor>& tensors,
                                      const std::map<std::string, std::string>& metadata = {},
                                      std::size_t alignment = 8);

/// Returns the same file as one string. Throws UsageError like lay_out_safetensors().
std::string encode_safetensors(const std::vector<NamedTensor>& tensors,
                               const std::map<std::string, std::string>& metadata = {});

/// Returns a name from a file for use in a one-line message: quoted, shortened, and with control characters
/// replaced.
std::string printable(std::string_view name);

}  // namespace convoy::io
