// The cuDNN plans of a stream's convolutions, and the choice among them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
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
///  2. If stream.autotune(): the fastest of the first plans that finalize, which is then added to the cache.
///  3. The first plan that finalizes. It is not added to the cache, and is replaced as soon as 1 or 2
///     applies.
/// Deterministic streams use 3 only.
class Conv2dPlans {
 public:
  static constexpr std::size_t kCapacity = 512;  // finalized plans; training ResNet-50 needs about 160

  explicit Conv2dPlans(CudaStream& stream) : handle_(stream), entries_(kCapacity) {}

  /// Enqueues the convolution, which overwrites its result. Blocks only while autotuning. Throws DeviceError
  /// if no engine supports the problem, or if there is no memory for the workspace of any engine.
  void run(CudaStream& stream, const Conv2dProblem& problem, const Conv2dArrays& arrays);

 private:
  using Plan = std::shared_ptr<const CudnnPlan>;
  struct Entry {
    Plan plan;                   // null: "separate"
    bool is_final = false;       // false: a first guess, which an autotuned plan may replace
    std::uint64_t revision = 0;  // revision of stream.algorithm_cache() at the last lookup
  };

  /// Calls accept() with finalized plans, in the order of the heuristics, until it returns true. Returns why
  /// the last plan that failed to finalize failed.
  std::string for_each_plan(const CudaStream& stream, const Conv2dProblem& problem,
                            cudnnBackendHeurMode_t mode, const std::function<bool(Plan)>& accept);
  Entry choose(CudaStream& stream, const Conv2dProblem& problem, const Conv2dArrays& arrays);
  Entry first(CudaStream& stream, const Conv2dProblem& problem);
  Entry fastest(CudaStream& stream, const Conv2dProblem& problem, const Conv2dArrays& arrays);

  void enqueue(CudaStream& stream, const Conv2dProblem& problem, const Conv2dArrays& arrays,
               const Plan& plan);
  void enqueue_separately(CudaStream& stream, const Conv2dProblem& problem, const Conv2dArrays& arrays);
  void enqueue_with_less_workspace(CudaStream& stream, const Conv2dProblem& problem,
                                   const Conv2dArrays& arrays, std::size_t workspace_bytes);
  /// Returns false if there is no memory for the workspace.
  bool try_enqueue(CudaStream& stream, const Conv2dProblem& problem, const Conv2dArrays& arrays,
                   const Plan& plan);

  CudnnHandle handle_;
  LruCache<Conv2dProblem, Entry> entries_;
  // Plans in captured CUDA graphs are kept, since a plan may own the code of its kernels.
  std::set<Plan> captured_plans_;
};

}  // namespace convoy::kernels
