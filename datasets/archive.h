// Members of a .tar.gz, straight into memory: nothing is unpacked to disk.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

namespace convoy {

/// Calls visit(path inside the archive, bytes) for each regular file up to `most_bytes`; larger ones are
/// refused, as are archives of more than `most_total` bytes when unpacked, whatever they were packed into.
/// DataError where the archive is damaged, cut off, or not a tar file.
void for_each_member(const std::filesystem::path& archive, std::uint64_t most_bytes, std::uint64_t most_total,
                     const std::function<void(const std::string& path, const std::string& bytes)>& visit);

}  // namespace convoy
