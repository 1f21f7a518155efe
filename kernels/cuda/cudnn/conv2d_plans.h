// The cuDNN plans of a stream's convolutions, and the choice among them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "convoy/kernels/base/lru_cache.h"
#include "convoy/kernels/cuda/cudnn/conv2d_graph.h"
#include "convoy/kernels/cuda/cudnn/plan.h"
#include "convoy/kernels/runtime/cuda/stream.h"

namespace convoy::kernels {

/// Chooses, caches and runs the plans of a stream's convolutions. The plan for a problem is, in this order:
///  1. A plan that was timed before, by this stream or as stored in stream.algorithm_cache(). The cache's
///     keys are problems (Conv2dProblem::text(), and "tf32" if f32 may use it). Its values are plans
///     (CudnnPlan::to_text()) or "separate": the convolution by cuDNN, then bias and ReLU by this project's
///     kernels.
///  2. If stream.autotune(): the fastest of the first eight plans that finalize and of the first plan of each
///     further engine, which is then added to the cache. With bias or ReLU, the fastest of the first eight
///     and "separate".
///  3. The first plan that finalizes and runs. It is not added to the cache, and is replaced as soon as 1 or
///     2 applies.
/// Deterministic streams use 3 only. A plan that cuDNN could not run is not used again on this stream.
class Conv2dPlans {
 public:
  static constexpr std::size_t kCapacity = 512;  // finalized plans; training ResNet-50 needs about 160

  explicit Conv2dPlans(CudaStream& stream) : handle_(stream), entries_(kCapacity) {}

  /// Enqueues the convolution, which overwrites its result or adds to it (problem.mode). Blocks only while
  /// autotuning, and after a plan that could not run. Returns false if cuDNN has no plan that runs; the
  /// caller then computes the result. Warns once per problem (CudaStream::warn) if it replaces a plan that
  /// could not run, or returns false for a problem that no other one replaces. Throws DeviceError if there is
  /// no memory for the workspace of any plan, or if the GPU has failed. Throws CaptureError if a plan cannot
  /// run in a capture; the next call uses another plan.
  [[nodiscard]] bool run(CudaStream& stream, const Conv2dProblem& problem, const Conv2dArrays& arrays);

 private:
  using Plan = std::shared_ptr<const CudnnPlan>;
  enum class Method : std::uint8_t { plan, separate, loops };  // loops: cuDNN has no plan that runs
  struct Entry {
    Method method = Method::plan;
    Plan plan = nullptr;         // of Method::plan
    bool is_final = false;       // false: a first guess, which an autotuned plan may replace
    std::uint64_t revision = 0;  // revision of stream.algorithm_cache() at the last lookup
  };
  enum class Outcome : std::uint8_t { enqueued, no_memory, failed };
  /// The plans of a problem that could not run.
  struct Failures {
    std::set<std::string> plans;  // as text
    std::string first;            // which plan failed first, and why
    bool is_reported = false;
  };

  /// Calls accept() with finalized plans, in the order of the heuristics, until it returns true. Returns why
  /// the last plan that failed to finalize failed.
  std::string for_each_plan(const CudaStream& stream, const Conv2dProblem& problem,
                            cudnnBackendHeurMode_t mode, const std::function<bool(Plan)>& accept);
  /// Return a plan by rule 1 or 2, and by rule 2. Return nullopt if there is none.
  std::optional<Entry> choose(CudaStream& stream, const Conv2dProblem& problem, const Conv2dArrays& arrays);
  std::optional<Entry> fastest(CudaStream& stream, const Conv2dProblem& problem, Conv2dArrays arrays);

  /// Enqueues by the first plan that runs and has a workspace of less than `workspace_limit` bytes, and keeps
  /// it for this stream. Returns false if there is none.
  bool run_first(CudaStream& stream, const Conv2dProblem& problem, const Conv2dArrays& arrays,
                 std::size_t workspace_limit);
  /// Enqueues the convolution, then bias and ReLU. Returns false if the convolution has no plan that runs.
  bool run_separately(CudaStream& stream, const Conv2dProblem& problem, const Conv2dArrays& arrays);
  Outcome try_enqueue(CudaStream& stream, const Conv2dProblem& problem, const Conv2dArrays& arrays,
                      const Plan& plan);
  bool has_failed(const Conv2dProblem& problem, const CudnnPlan& plan) const;
  /// Warns that `entry` replaces a plan that failed, or that no plan finalizes for the given reason.
  void report(CudaStream& stream, const Conv2dProblem& problem, const Entry& entry,
              const std::string& reason);

  CudnnHandle handle_;
  LruCache<Conv2dProblem, Entry> entries_;
  std::map<Conv2dProblem, Failures> failures_;
  // Plans in captured CUDA graphs are kept, since a plan may own the code of its kernels.
  std::set<Plan> captured_plans_;
};

}  // namespace convoy::kernels
