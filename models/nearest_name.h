// The nearest of a list of names: what a message suggests for a misspelt one.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace convoy {

/// The candidate with the smallest edit distance (insertions, deletions, substitutions and swaps of
/// neighbours; case does not count), the first of equals; empty where even that one is further than half of
/// the word away.
std::string nearest_name(std::string_view word, std::span<const std::string> candidates);

/// "'resnet81' is no model; did you mean 'resnet18'? (lenet, resnet18, resnet34)".
std::string unknown_name(std::string_view what, std::string_view word,
                         std::span<const std::string> candidates);

}  // namespace convoy
