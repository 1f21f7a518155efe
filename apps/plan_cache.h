// --plan-cache: what was timed and chosen, kept from one run to the next.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "kernels/runtime/device.h"

namespace convoy {

/// A device's choices as JSON text, with the hardware and libraries that they hold for. Empty where the
/// device has made none.
std::string choices_text(const Device& device);
/// Takes such a text up. Returns what is wrong with it, in one line, and takes nothing then: choices of other
/// hardware or libraries, or a text that is none.
std::optional<std::string> take_choices(const std::string& text, const Device& device);

/// A file of choices. They save time and nothing else, so whatever is wrong with the file is a warning.
class PlanCache {
 public:
  /// where: a file, "none", or "auto" for one of this hardware in the user's cache folder.
  PlanCache(const std::string& where, Device device);

  /// Gives the device what the file holds; a warning where that cannot be used.
  std::optional<std::string> load();
  /// Writes the file where there is anything new; a warning where it cannot be written.
  std::optional<std::string> store();

 private:
  std::filesystem::path file_;  // empty: none
  Device device_;
  std::uint64_t stored_revision_ = 0;
};

}  // namespace convoy
