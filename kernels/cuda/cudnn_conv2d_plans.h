// A stream's finished plans for convolutions, and how each was chosen.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>

#include "kernels/cuda/cudnn_conv2d_graph.h"
#include "kernels/cuda/cudnn_plan.h"
#include "kernels/cuda/lru_cache.h"
#include "kernels/runtime/cuda_stream.h"

namespace convoy {

/// Which plan computes a convolution, in this order:
///  1. what was timed before: by this stream, or as stream.choices() tells, whose keys are problems
///     (Conv2dProblem::text, and "tf32" where that is allowed to f32) and whose values are plans
///     (CudnnPlan::to_text) or "separate": the sum alone, with its bias and ReLU by kernels of our own;
///  2. where stream.may_time(): the fastest of the first plans that finalize, which is then such a choice;
///  3. the first that finalizes. It is used and not stored, and looked for anew once one of the above can be.
/// Deterministic streams go by 3 alone.
class Conv2dPlans {
 public:
  static constexpr std::size_t kCapacity = 512;  // finished plans; a training of ResNet-50 has some 160

  explicit Conv2dPlans(CudaStream& stream) : handle_(stream), entries_(kCapacity) {}

  /// Enqueues the convolution, writing its result. Throws DeviceError where no engine takes it, or where its
  /// workspace cannot be had by any that does.
  void run(CudaStream& stream, const Conv2dProblem& problem, const Conv2dArrays& arrays);

 private:
  using Plan = std::shared_ptr<const CudnnPlan>;
  struct Entry {
    Plan plan;  // null: "separate"
    bool settled = false;
    std::uint64_t revision = 0;  // of stream.choices() when it was last asked
  };

  /// Hands finished plans to take(), in the order in which heuristics propose them, until it has enough.
  /// Returns why one did not finalize.
  std::string propose(const CudaStream& stream, const Conv2dProblem& problem, cudnnBackendHeurMode_t mode,
                      const std::function<bool(Plan)>& take);
  Entry choose(CudaStream& stream, const Conv2dProblem& problem, const Conv2dArrays& arrays);
  Entry first(CudaStream& stream, const Conv2dProblem& problem);
  Entry fastest(CudaStream& stream, const Conv2dProblem& problem, const Conv2dArrays& arrays);

  void enqueue(CudaStream& stream, const Conv2dProblem& problem, const Conv2dArrays& arrays,
               const Plan& plan);
  void enqueue_separately(CudaStream& stream, const Conv2dProblem& problem, const Conv2dArrays& arrays);
  void enqueue_with_less(CudaStream& stream, const Conv2dProblem& problem, const Conv2dArrays& arrays,
                         std::size_t workspace_bytes);
  /// false where there is no memory for the workspace.
  bool try_enqueue(CudaStream& stream, const Conv2dProblem& problem, const Conv2dArrays& arrays,
                   const Plan& plan);

  CudnnHandle handle_;
  LruCache<Conv2dProblem, Entry> entries_;
  std::set<Plan> recorded_;  // in CUDA graphs: a plan may own the code of its kernels, so these stay
};

}  // namespace convoy
