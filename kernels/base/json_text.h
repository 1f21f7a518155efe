// JSON texts of strings with any bytes: names of directories and files need not be UTF-8.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace convoy {

/// Returns `json`, a value of nlohmann's library, as text: one line, or with `indent` spaces per level. In its
/// strings, bytes that are not UTF-8 become U+FFFD. All JSON of Convoy is written by this function.
template <class Json>
std::string json_text(const Json& json, int indent = -1) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

/// Returns the text as a reader of its JSON sees it: with U+FFFD for bytes that are not UTF-8.
template <class Json>
std::string as_utf8(const std::string& text) {
  return Json::parse(json_text(Json(text))).template get<std::string>();
}

/// Returns the text with each byte but letters, digits and `-._~/` as %XX (RFC 3986).
inline std::string percent_encoded(std::string_view text) {
  constexpr std::string_view kKept = "-._~/", kDigits = "0123456789ABCDEF";
  std::string encoded;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool is_kept = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                         kKept.find(c) != std::string_view::npos;
    if (is_kept)
      encoded += c;
    else
      encoded += {'%', kDigits[byte / 16], kDigits[byte % 16]};
  }
  return encoded;
}

/// Returns the text that percent_encoded() has encoded; nullopt if a % is not followed by two of its digits.
inline std::optional<std::string> percent_decoded(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string decoded;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded += text[i];
      continue;
    }
    if (i + 2 >= text.size()) return std::nullopt;
    const std::size_t high = kDigits.find(text[i + 1]), low = kDigits.find(text[i + 2]);
    if (high == std::string_view::npos || low == std::string_view::npos) return std::nullopt;
    decoded += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return decoded;
}

/// Sets json[key] to a path. Unless the path is UTF-8, so that it cannot be opened by that text, also sets
/// json[key + "_encoded"] to the percent-encoded path.
template <class Json>
void set_path(Json& json, const std::string& key, const std::string& path) {
  json[key] = path;
  if (as_utf8<Json>(path) != path) json[key + "_encoded"] = percent_encoded(path);
}

/// Returns the path that set_path() has set; empty if there is none.
template <class Json>
std::string path_at(const Json& json, const std::string& key) {
  const auto text = [&](const std::string& name) {
    return json.contains(name) && json[name].is_string() ? json[name].template get<std::string>() : "";
  };
  const std::string encoded = text(key + "_encoded");
  return encoded.empty() ? text(key) : percent_decoded(encoded).value_or(text(key));
}

}  // namespace convoy
