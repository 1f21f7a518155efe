// Text from files and networks, made safe for terminals.
#pragma once

#include <string>

namespace convoy {

/// Returns the text with `?` in place of the characters that terminals obey: control characters except line
/// breaks and tabs, and those of U+0080 to U+009F in UTF-8. A name in a data set could otherwise move the
/// cursor, or hide what follows.
inline std::string without_control_characters(std::string text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool begins_c1 = byte == 0xc2 && i + 1 < text.size() &&
                           static_cast<unsigned char>(text[i + 1]) >= 0x80 &&
                           static_cast<unsigned char>(text[i + 1]) < 0xa0;
    if (begins_c1) text.erase(i, 1);
    if (begins_c1 || (byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7f) text[i] = '?';
  }
  return text;
}

}  // namespace convoy
