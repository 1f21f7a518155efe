// The choice of the algorithm for each of a stream's convolutions: a plan of cuDNN, with or without padded
// copies of the arrays.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "convoy/kernels/base/lru_cache.h"
#include "convoy/kernels/cuda/cudnn/conv2d_graph.h"
#include "convoy/kernels/cuda/cudnn/plan.h"
#include "convoy/kernels/runtime/cuda/stream.h"

namespace convoy::kernels {

/// The number of floating-point operations of a convolution from which on a stream times padded copies:
/// stream.local<MinimumPaddedFlops>().
struct MinimumPaddedFlops {
  explicit MinimumPaddedFlops(CudaStream& /*stream*/) {}
  /// A convolution with fewer takes little longer than a launch, by any algorithm.
  double value = 2.5e8;
};

/// Chooses, caches and runs the algorithms of a stream's convolutions. The one for a problem is, in this
/// order:
///  1. One that was timed before, by this stream or as stored in stream.algorithm_cache(). The cache's keys
///     are problems (Conv2dProblem::text(), and "tf32" if f32 may use it). Its values are plans
///     (CudnnPlan::to_text()); "separate": first the convolution, then bias and ReLU by this project's
///     kernels; or "padded": a convolution of copies with as many input channels as tensor cores want, which
///     has an entry of its own. The cache also keeps the code of plans that cuDNN compiled at run time. If it
///     cannot be used, for example after an update of the driver, the plan is compiled again, with one warning
///     per stream.
///  2. If stream.autotune(): the fastest of all plans that the heuristics propose and that finalize, with
///     bias or ReLU also "separate", and if the problem has at least MinimumPaddedFlops also "padded". It is
///     then added to the cache.
///  3. The first plan that finalizes and runs. It is not added to the cache, and is replaced as soon as 1 or 2
///     applies.
/// Deterministic streams use 3 only. A plan that cuDNN could not run is not used again on this stream.
class Conv2dPlans {
 public:
  static constexpr std::size_t kCapacity = 512;  // problems; training ResNet-50 needs about 160

  explicit Conv2dPlans(CudaStream& stream) : handle_(stream), entries_(kCapacity) {}

  /// Enqueues the convolution, which overwrites its result or adds to it (problem.mode). Blocks only while
  /// autotuning, and after a plan that could not run. Returns false if nothing of the above runs; the
  /// caller then computes the result. Warns once per problem (CudaStream::warn) if it replaces a plan that
  /// could not run, or returns false for a problem that no other one replaces. Throws DeviceError if there is
  /// no memory for the workspace of any plan, or if the GPU has failed. Throws CaptureError if a plan cannot
  /// run in a capture; the next call uses another plan.
  [[nodiscard]] bool run(CudaStream& stream, const Conv2dProblem& problem, const Conv2dArrays& arrays);

 private:
  using Plan = std::shared_ptr<const CudnnPlan>;
  enum class Method : std::uint8_t { plan, separate, padded, loops };  // loops: no plan runs
  struct Entry {
    Method method = Method::plan;
    Plan plan = nullptr;         // of Method::plan
    bool is_final = false;       // false: a first guess, which an autotuned plan may replace
    std::uint64_t revision = 0;  // revision of stream.algorithm_cache() at the last lookup

    /// Returns the value for the algorithm cache.
    std::string to_text() const;
  };
  enum class Outcome : std::uint8_t { enqueued, no_memory, failed };
  /// The plans of a problem that could not run.
  struct Failures {
    std::set<std::string> plans;  // as text
    std::string first;            // which plan failed first, and why
    bool is_reported = false;
  };

  /// Return an entry by rule 1 or 2, and by rule 2. Return nullopt if there is none.
  std::optional<Entry> choose(CudaStream& stream, const Conv2dProblem& problem, const Conv2dArrays& arrays);
  std::optional<Entry> fastest(CudaStream& stream, const Conv2dProblem& problem, Conv2dArrays arrays);
  /// Returns the entries of the methods other than a plan that may compute the problem.
  static std::vector<Entry> alternatives(const Conv2dProblem& problem);
  /// Makes the plan that is stored as `text`, from its compiled code if there is any. Returns nullopt if it
  /// is not valid.
  std::optional<CudnnPlan> restored(CudaStream& stream, const Conv2dProblem& problem,
                                    const std::string& text);

  /// Enqueues the convolution by an entry. If a plan cannot run, says why not.
  Outcome enqueue(CudaStream& stream, const Conv2dProblem& problem, const Conv2dArrays& arrays,
                  const Entry& entry);
  /// Enqueues by the first plan that runs and has a workspace of less than `workspace_limit` bytes, and keeps
  /// it for this stream. Returns false if there is none.
  bool run_first(CudaStream& stream, const Conv2dProblem& problem, const Conv2dArrays& arrays,
                 std::size_t workspace_limit);
  /// Enqueues the convolution, then bias and ReLU. Returns false if the convolution has no plan that runs.
  bool run_separately(CudaStream& stream, const Conv2dProblem& problem, const Conv2dArrays& arrays);
  /// Enqueues the convolution of copies with more input channels, which are 0. Returns false if it has no
  /// plan that runs.
  bool run_padded(CudaStream& stream, const Conv2dProblem& problem, const Conv2dArrays& arrays);
  Outcome try_enqueue(CudaStream& stream, const Conv2dProblem& problem, const Conv2dArrays& arrays,
                      const Plan& plan);
  bool has_failed(const Conv2dProblem& problem, const CudnnPlan& plan) const;
  /// Warns that `entry` replaces a plan that failed, or that no plan finalizes for the given reason.
  void report(CudaStream& stream, const Conv2dProblem& problem, const Entry& entry,
              const std::string& reason);

  CudnnHandle handle_;
  std::deque<CudnnHandle> compilers_;  // of the further threads that compile plans
  bool has_reported_code_ = false;
  LruCache<Conv2dProblem, Entry> entries_;
  std::map<Conv2dProblem, Failures> failures_;
  // Plans in captured CUDA graphs are kept, since a plan may own the code of its kernels.
  std::set<Plan> captured_plans_;
};

}  // namespace convoy::kernels
