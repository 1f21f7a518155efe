// Files and folders of a data set: every failure of the file system becomes a DataError that names the path.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "engine/tensor/tensor.h"

namespace convoy {

/// The whole of a regular file of at most `most` bytes.
std::string read_file(const std::filesystem::path& file, std::uint64_t most);

/// What a folder holds, sorted by path (directory order differs between machines); hidden entries left out.
std::vector<std::filesystem::directory_entry> list_folder(const std::filesystem::path& folder);

/// DataError unless this is a folder.
void require_folder(const std::filesystem::path& folder);

bool is_file(const std::filesystem::path& path);
bool is_folder(const std::filesystem::path& path);

/// Room for `count` images in host memory; where there is not enough, DataError says how much `name` needs.
Tensor allocate_images(const std::string& name, std::int64_t count, std::int64_t height, std::int64_t width,
                       std::int64_t channels);

}  // namespace convoy
