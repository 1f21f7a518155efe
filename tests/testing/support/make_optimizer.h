// Optimizers by name, for tests that run with several.
#pragma once

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "convoy/engine/optim/muon.h"
#include "convoy/engine/optim/optimizer.h"
#include "convoy/kernels/base/check.h"

namespace convoy::testing {

/// Returns the optimizer "sgd" (with momentum 0.9), "adam", "adamw" or "muon" with default
/// settings.
inline std::unique_ptr<optim::Optimizer> make_optimizer(std::string_view name,
                                                        std::vector<optim::ParameterGroup> groups) {
  if (name == "sgd")
    return std::make_unique<optim::Sgd>(std::move(groups), optim::SgdSettings{.momentum = 0.9});
  if (name == "muon") return std::make_unique<optim::Muon>(optim::muon_groups(groups));
  check(name == "adam" || name == "adamw", "no optimizer {}", name);
  return std::make_unique<optim::Adam>(std::move(groups), optim::AdamSettings{.decoupled = name == "adamw"});
}

}  // namespace convoy::testing
