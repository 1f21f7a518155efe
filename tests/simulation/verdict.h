// Which ranks an error blames.
#pragma once

#include <optional>
#include <set>
#include <string>

namespace simulation {

/// Returns the ranks that the text of an error, or a verdict, says to be the cause; nullopt if it has no form that is known
/// here. A rank that has waited, or that has noticed, is none of them.
std::optional<std::set<int>> culprits_in(const std::string& text);

}  // namespace simulation
