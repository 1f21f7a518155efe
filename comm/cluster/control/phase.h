// The phases of a rank, which tell what a rank does that the others wait for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace convoy::dist {

/// What the main thread of a rank does. A rank is in one phase at a time.
enum class Phase : std::uint8_t {
  start,       // setting up: the model, the device, the communicators
  debugger,    // waiting until a debugger is attached
  download,    // downloading the data set
  read,        // reading the data set
  load,        // loading a checkpoint
  data,        // waiting for the next batch of the data loader
  forward,     // the forward pass
  backward,    // the backward pass
  gradients,   // waiting for the sums of the gradients
  optimizer,   // the optimizer step
  replay,      // enqueuing the CUDA graph of a step
  between,     // between two steps
  evaluation,  // an evaluation
  save,        // saving a checkpoint
  finish       // after the last step
};

/// Returns the name of a phase, as in files: "data".
std::string_view phase_name(Phase phase);
/// Returns the phase of this name; nullopt if there is none.
std::optional<Phase> find_phase(std::string_view name);
/// Returns what a rank does, for messages: "in the data loader", which continues "rank 2 has been".
std::string_view to_string(Phase phase);
/// Returns whether other ranks wait without a time limit for a rank in this phase: it reads or writes files,
/// which may take any time, or it waits for a person.
bool may_take_any_time(Phase phase);

}  // namespace convoy::dist
