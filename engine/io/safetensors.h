// The safetensors format: 8 bytes little-endian header length, a JSON header {name: {dtype, shape, data_offsets}},
// then the data. Readable from Python, no code in the file. The reader trusts nothing: every length is checked
// before it is used, and a file that is not exactly as the format says is refused.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "engine/tensor/tensor.h"

namespace convoy {

struct NamedTensor {
  std::string name;
  Tensor tensor;
};

struct SafetensorsFile {
  std::vector<NamedTensor> tensors;            // in order of their data
  std::map<std::string, std::string> metadata;  // "__metadata__"
};

/// Reads a whole file onto a device. CheckpointError for anything amiss, in one line that names the file.
SafetensorsFile read_safetensors(const std::filesystem::path& path, const Device& device);

/// The file's bytes, for writing through an atomic writer; tensors may be on any device.
std::string encode_safetensors(const std::vector<NamedTensor>& tensors,
                               const std::map<std::string, std::string>& metadata = {});

}  // namespace convoy
