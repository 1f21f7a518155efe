// The flags of the programs that set the options of the library.
#pragma once

#include <exception>
#include <span>
#include <string>
#include <string_view>

namespace convoy {

/// Returns the message of an error, with the flags of the programs in place of the option of an OptionError and of the
/// remedy of a Remedy: "--workers: found -1, …" for "LoaderOptions::workers: found -1, …".
std::string message_with_flag(const std::exception& error);

/// Returns "; did you mean 'PREFIXlr'?", or what to do instead, for a name that is none of `candidates`, all
/// of them without dashes. Looks for a candidate of the same meaning, such as lr for "learning-rate" or
/// "LEARNING_RATE", then for one of similar letters.
/// Returns "" if there is neither.
std::string suggestion(std::string_view name, std::span<const std::string> candidates,
                       std::string_view prefix);

}  // namespace convoy
