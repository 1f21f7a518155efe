// The safetensors format: 8 bytes little-endian header length, a JSON header {name: {dtype, shape,
// data_offsets}}, then the data. Readable from Python, no code in the file. The reader trusts nothing: every
// length is checked before it is used, and a file that is not exactly as the format says is refused.
//
// Element types: F64, F32, F16, BF16, I32, U8. I64 is read as i32 where every value fits (torchvision's files
// count batches in I64 scalars); any other type is refused.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "engine/tensor/tensor.h"

namespace convoy {

struct NamedTensor {
  std::string name;
  Tensor tensor;
};

struct SafetensorsFile {
  std::vector<NamedTensor> tensors;             // in order of their data
  std::map<std::string, std::string> metadata;  // "__metadata__"
};

/// Reads a whole file onto a device, each tensor straight into its place: memory stays that of the file.
/// CheckpointError for anything amiss, in one line that names the file.
SafetensorsFile read_safetensors(const std::filesystem::path& path, const Device& device);

/// What a file consists of, with no copy of what is on the host already.
struct SafetensorsLayout {
  std::string header;        // its length before it
  std::vector<Tensor> data;  // on the CPU, in the order of the file

  std::vector<std::string_view> pieces() const;  // all bytes, for as long as this lives
  std::size_t size() const;                      // bytes
};

/// For writing through a durable writer; tensors may be on any device. Data lie in the given order, but wider
/// elements before narrower ones, so that each tensor is aligned to its element. UsageError for a name that
/// occurs twice or that the format reserves.
SafetensorsLayout lay_out_safetensors(const std::vector<NamedTensor>& tensors,
                                      const std::map<std::string, std::string>& metadata = {});

/// The same in one piece.
std::string encode_safetensors(const std::vector<NamedTensor>& tensors,
                               const std::map<std::string, std::string>& metadata = {});

}  // namespace convoy
