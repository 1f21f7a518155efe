// File system access for data sets. Every failure is a DataError that names the path, or a StorageError if its device
// fails.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "convoy/engine/io/file.h"
#include "convoy/engine/tensor/tensor.h"

namespace convoy::data {

/// Returns the contents of a regular file. Throws DataError if it cannot be read, or if it is larger than
/// `max_bytes`.
std::string read_file(const std::filesystem::path& file, std::uint64_t max_bytes);

/// Returns the entries of a directory, sorted by path, because the order of the file system differs between
/// machines. Throws DataError if the directory cannot be listed.
std::vector<std::filesystem::directory_entry> list_directory(const std::filesystem::path& directory);

/// Throws DataError unless `directory` is an existing directory.
void require_directory(const std::filesystem::path& directory);

/// Returns whether `path` is a regular file. Returns false, instead of an error, if it cannot be accessed.
bool is_file(const std::filesystem::path& path);
bool is_file(
    const std::filesystem::directory_entry& entry);  // asks only about what its directory does not tell
/// Returns whether `path` is a directory. Returns false, instead of an error, if it cannot be accessed.
bool is_existing_directory(const std::filesystem::path& path);
bool is_existing_directory(const std::filesystem::directory_entry& entry);

/// Writes `bytes` to an open file from `offset` on. Throws OutputError with `name` if that fails.
void write_at(const io::FileDescriptor& file, std::string_view bytes, std::size_t offset,
              const std::string& name);

/// Returns the first `maximum` texts with `separator` between them, and an ellipsis in place of the others.
std::string listed(const std::vector<std::string>& texts, std::size_t maximum = 5,
                   std::string_view separator = ", ");
/// Returns `text` with the letters A to Z in lower case.
std::string lower_case(std::string text);

/// Allocates an uninitialized u8 tensor [count, height, width, channels] in host memory. Throws DataError
/// with `name` and the required size if there is not enough memory.
Tensor allocate_images(const std::string& name, std::int64_t count, std::int64_t height, std::int64_t width,
                       std::int64_t channels);

}  // namespace convoy::data
