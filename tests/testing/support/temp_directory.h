// A temporary directory for one test.
#pragma once

#include <stdlib.h>  // mkdtemp is POSIX, not in <cstdlib>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>

namespace convoy::testing {

/// Returns the bytes of a file; none if it cannot be read.
inline std::string contents_of(const std::filesystem::path& path) {
  std::ostringstream bytes;
  bytes << std::ifstream(path, std::ios::binary).rdbuf();
  return bytes.str();
}

/// A directory that the constructor creates and the destructor removes with its contents.
class TempDirectory {
 public:
  /// Creates the directory in `parent`. Throws std::runtime_error if that fails.
  explicit TempDirectory(const std::filesystem::path& parent = std::filesystem::temp_directory_path()) {
    std::string pattern = (parent / "convoy-test-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr)
      throw std::runtime_error("cannot create a temporary directory at " + pattern);
    path_ = pattern;
  }
  ~TempDirectory() {
    std::error_code ignored;  // a destructor must not throw; a directory left behind is harmless
    std::filesystem::remove_all(path_, ignored);
  }
  TempDirectory(const TempDirectory&) = delete;
  TempDirectory& operator=(const TempDirectory&) = delete;

  /// Returns a parent for tests that sync many files: an in-memory file system if there is one, so that they
  /// do not wait for a disk.
  static std::filesystem::path in_memory() {
    const std::filesystem::path shared = "/dev/shm";
    return access(shared.c_str(), W_OK) == 0 ? shared : std::filesystem::temp_directory_path();
  }

  const std::filesystem::path& path() const { return path_; }

  /// Writes `bytes` to the file `name` in this directory, creating its parent directories. Returns its path.
  /// Throws std::runtime_error if that fails.
  std::filesystem::path write(const std::filesystem::path& name, std::string_view bytes) const {
    const std::filesystem::path file = path_ / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream out(file, std::ios::binary | std::ios::trunc);
    out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    out.close();
    if (!out) throw std::runtime_error("cannot write " + file.string());
    return file;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace convoy::testing
