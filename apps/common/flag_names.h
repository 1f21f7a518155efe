// The flags of the programs that set the options of the library.
#pragma once

#include <span>
#include <string>

namespace convoy {

/// A name in the library's messages, and what the programs say instead.
struct FlagName {
  const char* library;  // "LoaderOptions::global_batch"
  const char* flag;     // "--batch-size"
};

/// Returns all of them. The library does not know the flags of programs, so its messages name its own options.
std::span<const FlagName> flag_names();

/// Returns the message with the flags of the programs in place of the library's names.
std::string with_flag_names(std::string message);

}  // namespace convoy
