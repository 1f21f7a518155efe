#include "convoy/comm/cluster/control/phase.h"

#include <array>

namespace convoy::dist {
namespace {

struct Row {
  Phase phase;
  std::string_view name, text;
  bool may_take_any_time;
};

constexpr std::array kPhases = {
    Row{Phase::start, "start", "setting up", false},
    Row{Phase::debugger, "debugger", "waiting for a debugger", true},
    Row{Phase::download, "download", "downloading the data set", true},
    Row{Phase::read, "read", "reading the data set", true},
    Row{Phase::load, "load", "loading a checkpoint", true},
    Row{Phase::data, "data", "in the data loader", true},
    Row{Phase::forward, "forward", "in the forward pass", false},
    Row{Phase::backward, "backward", "in the backward pass", false},
    Row{Phase::gradients, "gradients", "waiting for gradients", false},
    Row{Phase::optimizer, "optimizer", "in the optimizer step", false},
    Row{Phase::replay, "replay", "replaying the CUDA graph of the step", false},
    Row{Phase::between, "between", "between two steps", false},
    Row{Phase::evaluation, "evaluation", "in an evaluation", false},
    Row{Phase::save, "save", "saving a checkpoint", true},
    Row{Phase::finish, "finish", "finishing", false},
};

const Row& row_of(Phase phase) { return kPhases[static_cast<std::size_t>(phase) % kPhases.size()]; }

constexpr bool is_in_order() {
  for (std::size_t i = 0; i < kPhases.size(); ++i)
    if (static_cast<std::size_t>(kPhases[i].phase) != i) return false;
  return true;
}
static_assert(is_in_order());

}  // namespace

std::string_view phase_name(Phase phase) { return row_of(phase).name; }

std::optional<Phase> find_phase(std::string_view name) {
  for (const Row& row : kPhases)
    if (row.name == name) return row.phase;
  return std::nullopt;
}

std::string_view to_string(Phase phase) { return row_of(phase).text; }

bool may_take_any_time(Phase phase) { return row_of(phase).may_take_any_time; }

}  // namespace convoy::dist
