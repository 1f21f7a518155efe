// The flags of the programs that set the options of the library.
#pragma once

#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace convoy {

/// Returns the message of an error, with the flags of the programs in place of the option of an OptionError and of the
/// remedy of a Remedy: "--workers: found -1, …" for "LoaderOptions::workers: found -1, …".
std::string message_with_flag(const std::exception& error);

/// What the programs have for a flag of other trainers.
struct FlagAdvice {
  std::string_view flag;  // for programs that have this flag, without dashes; empty: for all programs
  std::string_view text;  // what to do instead; empty if the flag has the same meaning
};
/// Returns the advice for a flag that other trainers have, such as "learning-rate" or "local_rank", the best
/// first; none for a name that is not known. Hyphens and underscores are the same, and case and leading
/// dashes do not count.
std::vector<FlagAdvice> advice_for(std::string_view name);

/// Returns "; did you mean 'PREFIXlr'?", or what to do instead, for a name that is none of `candidates`, all
/// of them without dashes. Looks for a candidate of the same meaning, then for one of similar letters.
/// Returns "" if there is neither.
std::string suggestion(std::string_view name, std::span<const std::string> candidates,
                       std::string_view prefix);

}  // namespace convoy
