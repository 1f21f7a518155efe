// Spelling suggestions for error messages about unknown names.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace convoy {

/// Returns the candidate with the smallest edit distance to `word`, or the first of several. Insertions,
/// deletions, substitutions and swaps of adjacent characters count as one edit each; case is ignored. Returns
/// an empty string if every distance is greater than half the length of `word`.
std::string nearest_name(std::string_view word, std::span<const std::string> candidates);

/// Returns the error message for a `word` that is not in `candidates`; `what` names the kind of thing.
/// Example:
///   "unknown model 'resnet81'; did you mean 'resnet18'? (expected one of: lenet, resnet18, resnet34)"
std::string unknown_name(std::string_view what, std::string_view word,
                         std::span<const std::string> candidates);

}  // namespace convoy
