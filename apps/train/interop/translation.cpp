#include "convoy/apps/train/interop/translation.h"

#include <algorithm>
#include <charconv>

#include "convoy/kernels/base/check.h"

namespace convoy::interop {

Translation::Translation(CommandLine& line, std::string file, std::vector<Setting> settings)
    : line_(line), file_(std::move(file)), settings_(std::move(settings)) {}

bool Translation::contains(std::string_view key) const {
  return std::any_of(settings_.begin(), settings_.end(), [&](const Setting& each) {
    return each.key == key || each.key.starts_with(std::string(key) + ".");
  });
}

std::optional<std::string> Translation::take(std::string_view key) {
  const auto found =
      std::find_if(settings_.begin(), settings_.end(), [&](const Setting& each) { return each.key == key; });
  if (found == settings_.end()) return std::nullopt;
  std::string value = std::move(found->value);
  settings_.erase(found);
  if (value == "auto" || value == "null") return std::nullopt;
  return value;
}

std::optional<std::int64_t> Translation::take_count(std::string_view key, std::int64_t minimum,
                                                    std::int64_t maximum) {
  const std::optional<std::string> text = take(key);
  if (!text) return std::nullopt;
  std::int64_t value = 0;
  const char* const end = text->data() + text->size();
  const auto [stop, error] = std::from_chars(text->data(), end, value);
  if (error != std::errc() || stop != end || value < minimum || value > maximum)
    refuse(key, *text, fmt::format("a whole number from {} to {}", minimum, maximum));
  return value;
}

std::optional<bool> Translation::take_bool(std::string_view key) {
  const std::optional<std::string> text = take(key);
  if (!text) return std::nullopt;
  if (*text != "true" && *text != "false") refuse(key, *text, "true or false");
  return *text == "true";
}

bool Translation::take_true(std::string_view key) {
  const std::optional<bool> value = take_bool(key);
  if (value && !*value) note_taken(fmt::format("{} false", key));
  return value.value_or(false);
}

void Translation::drop(std::string_view prefix) {
  std::erase_if(settings_, [&](const Setting& each) { return each.key.starts_with(prefix); });
}

void Translation::set(std::string_view flag, const std::string& value, std::string_view key) {
  const bool is_set_here = std::find(set_here_.begin(), set_here_.end(), flag) != set_here_.end();
  if (line_.set_default(flag, value, fmt::format("{}: {}", file_, key))) {
    set_here_.emplace_back(flag);
    taken_.push_back(fmt::format("{} as --{} {}", key, flag, value));
  } else {
    overridden_.push_back(
        fmt::format("{} by {}", key, is_set_here ? "another key" : fmt::format("--{}", flag)));
  }
}

void Translation::set_all(std::span<const SameMeaning> rows) {
  for (const SameMeaning& row : rows) {
    const bool is_absent = !contains(row.key);
    const std::optional<std::string> value = take(row.key);
    if (value)
      set(row.flag, *value, row.key);
    else if (is_absent && !row.absent.empty() && !line_.given(row.flag))
      set(row.flag, std::string(row.absent), fmt::format("{} (absent)", row.key));
  }
}

void Translation::check_built_in(std::span<const BuiltIn> rows) {
  for (const BuiltIn& row : rows) {
    const std::optional<std::string> value = take(row.key);
    if (!value) continue;
    if (*value == row.value)
      note_taken(fmt::format("{} {}", row.key, *value));
    else
      note_ignored(fmt::format("{} {} (Convoy has {})", row.key, *value, row.value));
  }
}

void Translation::refuse(std::string_view key, std::string_view found, std::string_view expected) const {
  fail<UsageError>("{}: {}: found {}, expected {}", file_, key, found, expected);
}

std::string Translation::taken() const {
  std::string text = fmt::format("{}: taken: {}", file_,
                                 taken_.empty() ? "nothing" : fmt::format("{}", fmt::join(taken_, ", ")));
  if (!overridden_.empty()) text += fmt::format("; overridden: {}", fmt::join(overridden_, ", "));
  return text;
}

std::string Translation::ignored() const {
  std::vector<std::string> all = ignored_;
  for (const Setting& setting : settings_) {
    if (setting.value != "auto" && setting.value != "null")
      all.push_back(fmt::format("{} {}", setting.key, setting.value));
  }
  if (all.empty()) return "";
  return fmt::format("{}: ignored, Convoy has no such setting: {}", file_, fmt::join(all, ", "));
}

}  // namespace convoy::interop
