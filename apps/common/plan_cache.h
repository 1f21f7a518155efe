// The file of --plan-cache, which keeps the autotuned algorithms of a GPU between runs.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "convoy/kernels/runtime/device_context.h"

namespace convoy {

/// Returns the algorithm cache of `device` as JSON, with the hardware and libraries that it is valid for; ""
/// if the cache is empty. Does not contain compiled code, which may have many megabytes.
std::string format_algorithm_cache(const DeviceContext& device);
/// Inserts the entries of such a text into the algorithm cache of `device`. If the text is damaged or for
/// other hardware or libraries, inserts nothing and returns the problem in one line, to follow the name of
/// the file.
std::optional<std::string> load_algorithm_cache(const std::string& text, const DeviceContext& device);

/// A file with the algorithm cache of a device, and with the code of algorithms that were compiled at run
/// time. Each code has a checksum. The file only saves time, so problems with it are warnings.
class PlanCache {
 public:
  /// `where` is a file, "none", or "auto" for a file in the user's cache directory that depends on the
  /// hardware.
  PlanCache(const std::string& where, DeviceContext device);

  /// Loads the file, if it exists, into the device's algorithm cache. Leaves out damaged code. Returns a
  /// warning if the file or a part of it cannot be used.
  std::optional<std::string> load();
  /// Writes the file if the cache has changed since the last load() or store(). Returns a warning if it
  /// cannot.
  std::optional<std::string> store();

 private:
  std::filesystem::path file_;  // empty: no file
  DeviceContext device_;
  std::uint64_t stored_revision_ = 0;
};

}  // namespace convoy
