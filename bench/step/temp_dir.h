// A temporary directory.
#pragma once

#include <filesystem>

namespace convoy::bench {

/// A new directory that is removed with its contents by the destructor.
class TempDirectory {
 public:
  /// Creates the directory in the system's directory for temporary files. Throws OutputError if that fails.
  TempDirectory();
  ~TempDirectory();
  TempDirectory(const TempDirectory&) = delete;
  TempDirectory& operator=(const TempDirectory&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace convoy::bench
