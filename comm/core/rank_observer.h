// RankObserver: the interface through which a program tells an observer of the whole job what its rank does.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <vector>

namespace convoy::dist {

/// What the main thread of a rank does. A rank is in one phase at a time.
enum class Phase : std::uint8_t {
  start,       // setting up: the model, the device, the communicators
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

/// What a training tells about its rank, and the one question that it asks. This class observes nothing: it
/// is the observer of a job with one rank. ControlPlane (comm/cluster/control) observes the ranks of a job.
/// One thread of the rank makes all calls.
class RankObserver {
 public:
  virtual ~RankObserver() = default;
  RankObserver() = default;
  RankObserver(const RankObserver&) = delete;
  RankObserver& operator=(const RankObserver&) = delete;

  /// Sets what this rank does now. Returns what it did before.
  virtual Phase enter(Phase phase) { return phase; }
  /// Sets the number of the training step that this rank computes.
  virtual void set_step(std::int64_t /*step*/) {}
  /// Returns the code with which all ranks stop now, or 0 to go on. All ranks call it at the same points of
  /// their programs, and get the same result. `local` is the code of this rank, 0 for none; the smallest code
  /// of all ranks counts. Throws PeerError if the ranks do not agree within the timeout.
  virtual int stop_code(int local) { return local; }
  /// Records a warning of this rank for the job.
  virtual void warn(const std::string& /*text*/) {}
  /// Returns the warnings of the job about its ranks since the last call, such as one about a slow rank. Rank 0
  /// alone has any.
  virtual std::vector<std::string> take_warnings() { return {}; }
};

/// Sets what a rank does now. `observer` may be null.
inline void enter(RankObserver* observer, Phase phase) {
  if (observer != nullptr) observer->enter(phase);
}

/// Sets the phase of a rank for the lifetime of this object, and then the previous one again. If an exception
/// ends the lifetime, the phase remains: it is the one in which the rank fails.
class PhaseScope {
 public:
  /// `observer` may be null.
  PhaseScope(RankObserver* observer, Phase phase) : observer_(observer) {
    if (observer_ != nullptr) previous_ = observer_->enter(phase);
  }
  ~PhaseScope() {
    if (std::uncaught_exceptions() == exceptions_) enter(observer_, previous_);
  }
  PhaseScope(const PhaseScope&) = delete;
  PhaseScope& operator=(const PhaseScope&) = delete;

 private:
  RankObserver* observer_;
  Phase previous_ = Phase::start;
  int exceptions_ = std::uncaught_exceptions();
};

}  // namespace convoy::dist
