// Reads the members of a .tar.gz archive into memory, without unpacking it to disk.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

namespace convoy::data {

/// Calls visit(path in the archive, contents) for each regular file. Throws DataError if a file is larger
/// than `max_bytes`, if all files together are larger than `max_total` bytes, or if the archive is damaged,
/// truncated or not a tar file. Sizes are checked before the data is unpacked.
void for_each_member(const std::filesystem::path& archive, std::uint64_t max_bytes, std::uint64_t max_total,
                     const std::function<void(const std::string& path, const std::string& bytes)>& visit);

}  // namespace convoy::data
