// What the tests of checkpoints share: reading and damaging files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "convoy/engine/io/manifest.h"
#include "convoy/kernels/base/error.h"
#include "tests/testing/support/temp_directory.h"

namespace convoy {

inline std::vector<std::string> names_in(const std::filesystem::path& directory) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory))
    names.push_back(entry.path().filename().string());
  return names;
}

inline io::Manifest at_step(std::int64_t step) {
  io::Manifest manifest;
  manifest.step = step;
  return manifest;
}

template <class F>
std::string checkpoint_error(F&& f) {
  try {
    f();
    return "";
  } catch (const CheckpointError& error) {
    return error.what();
  }
}

inline void flip_byte(const std::filesystem::path& path, std::size_t position) {
  std::string bytes = testing::contents_of(path);
  bytes.at(position) = static_cast<char>(~bytes[position]);
  std::ofstream(path, std::ios::binary) << bytes;
}

}  // namespace convoy
