// Translation: from the settings of one configuration file to flags.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "convoy/apps/common/command_line.h"
#include "convoy/apps/train/interop/setting.h"

namespace convoy::interop {

/// A key that sets one flag without a conversion.
struct SameMeaning {
  std::string_view key, flag;
  /// The value that counts if the file has no such key; empty if the flag then keeps its default.
  std::string_view absent = "";
};

/// A key for which Convoy has one value and no flag.
struct BuiltIn {
  std::string_view key, value;
};

/// The translation of one file. Every function that takes a key removes it from the settings; what is left at the end has
/// no flag. Values are removed once they are used, so a key is reported once.
class Translation {
 public:
  /// line: the flags to set; those that are given already keep their values. It must outlive the translation.
  /// file: the name of the file in messages.
  Translation(CommandLine& line, std::string file, std::vector<Setting> settings);

  /// Returns whether the file has the key, or a key within it.
  bool contains(std::string_view key) const;
  /// Removes the key and returns its value; nullopt if there is none, or if it is "auto" or null.
  std::optional<std::string> take(std::string_view key);
  /// Does the same for a whole number from `minimum` to `maximum`. Throws UsageError for another value.
  std::optional<std::int64_t> take_count(std::string_view key, std::int64_t minimum = 1,
                                         std::int64_t maximum = 1'000'000'000);
  /// Does the same for a truth value. Throws UsageError for another value.
  std::optional<bool> take_bool(std::string_view key);
  /// Removes the key and returns whether it is true; reports a key that is false. Throws UsageError for another value.
  bool take_true(std::string_view key);
  /// Removes all keys that begin with `prefix`, which have no effect.
  void drop(std::string_view prefix);

  /// Sets a flag, unless it is given, and reports that `key` did. Throws UsageError for an invalid value.
  void set(std::string_view flag, const std::string& value, std::string_view key);
  /// Sets the flags of the rows.
  void set_all(std::span<const SameMeaning> rows);
  /// Removes the keys of the rows, and reports those with another value than Convoy has.
  void check_built_in(std::span<const BuiltIn> rows);
  /// Reports that a key counts, without a flag: "gradient_accumulation_steps 1".
  void note_taken(std::string_view text) { taken_.emplace_back(text); }
  /// Reports that a key is not followed: "scheduler.params.warmup_type log (Convoy's warmup is linear)".
  void note_ignored(std::string_view text) { ignored_.emplace_back(text); }
  /// Throws UsageError for a key that changes the result in a way that Convoy does not have.
  [[noreturn]] void refuse(std::string_view key, std::string_view found, std::string_view expected) const;

  const CommandLine& line() const { return line_; }

  /// Returns a line that says what was taken.
  std::string taken() const;
  /// Returns a line that names the keys without a flag, or "" if there are none.
  std::string ignored() const;

 private:
  CommandLine& line_;
  std::string file_;
  std::vector<Setting> settings_;
  std::vector<std::string> taken_, ignored_, overridden_, set_here_;
};

}  // namespace convoy::interop
