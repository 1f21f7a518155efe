// A folder for files that nobody keeps, removed with everything in it.
#pragma once

#include <filesystem>

namespace convoy::bench {

class PassingFolder {
 public:
  /// OutputError where the system's folder for temporary files takes none.
  PassingFolder();
  ~PassingFolder();
  PassingFolder(const PassingFolder&) = delete;
  PassingFolder& operator=(const PassingFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace convoy::bench
