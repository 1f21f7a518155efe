// From a graph of operations to something that runs: cuDNN's heuristics propose engines with their settings
// (knobs), of which those are taken that compute as precisely as they should; an engine configuration that
// finalizes becomes a plan. (NVIDIA cuDNN Backend API, "Use Cases".)
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/cuda/cudnn_descriptor.h"
#include "kernels/runtime/cuda_stream.h"
#include "kernels/runtime/dtype.h"

namespace convoy {

/// What plans are made for: a GPU, or the description of one.
class CudnnTarget {
 public:
  virtual ~CudnnTarget() = default;
  /// Before a descriptor is finalized, if it is of a type that depends on the GPU.
  virtual void tell(CudnnDescriptor& descriptor) const = 0;
};

/// A stream's own connection to cuDNN.
class CudnnHandle final : public CudnnTarget {
 public:
  explicit CudnnHandle(CudaStream& stream);
  ~CudnnHandle() override;
  CudnnHandle(const CudnnHandle&) = delete;
  CudnnHandle& operator=(const CudnnHandle&) = delete;

  cudnnHandle_t get() const { return handle_; }
  void tell(CudnnDescriptor& descriptor) const override;

 private:
  cudnnHandle_t handle_ = nullptr;
};

/// A finalized operation graph. The interface does not promise that a descriptor copies what it is given, so
/// here and in plans all parts stay.
struct CudnnGraph {
  std::deque<CudnnDescriptor> parts;  // references to its elements stay valid
  CudnnDescriptor graph{CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR};
};

/// Which engines may compute on arrays of a type, by the notes that cuDNN puts on them.
///  - f32 sums products of f32: no tensor cores (they round factors to 10 bits) unless tf32, and never inputs
///    that are converted down, whose exponents may be shorter, too.
///  - f16 and bf16 sum in f32: no reduced-precision reduction. Neither FFT nor Winograd, which transform the
///    inputs in the half type: that costs bits, and f16 overflows.
///  - f32 may use FFT and Winograd with tiles of up to 6x6: their errors are a few times those of a sum in
///  any
///    order (Lavin and Gray, arXiv:1509.09308, table 4). Those of 13x13 tiles are not.
///  - deterministic: nothing that is noted as different from run to run.
struct EngineRules {
  DType dtype = DType::f32;
  bool tf32 = false;
  bool deterministic = false;

  bool allow(std::span<const cudnnBackendNumericalNote_t> notes) const;
};

class CudnnPlan {
 public:
  /// Of a finalized configuration and what else it is made of. nullopt, and the reason in `why`, where the
  /// plan does not finalize.
  static std::optional<CudnnPlan> make(const CudnnTarget& target, std::shared_ptr<const CudnnGraph> graph,
                                       CudnnDescriptor engine_config, std::vector<CudnnDescriptor> parts,
                                       std::string& why);

  /// The plan that to_text() describes; nullopt where the text is none, or no longer one for this graph, GPU
  /// and version of cuDNN, or one that the rules forbid.
  static std::optional<CudnnPlan> from_text(const CudnnTarget& target,
                                            std::shared_ptr<const CudnnGraph> graph, const EngineRules& rules,
                                            std::string_view text);
  /// "engine 12 knobs 2=3 14=5 workspace 1048576": the engine's index, its knobs by type, bytes.
  std::string to_text() const;

  std::size_t workspace_bytes() const { return workspace_bytes_; }

  /// Enqueues: arrays[i] belongs to the tensor with ids[i].
  void execute(const CudnnHandle& handle, const std::vector<std::int64_t>& ids,
               const std::vector<void*>& arrays, void* workspace) const;

 private:
  CudnnPlan(std::shared_ptr<const CudnnGraph> graph, CudnnDescriptor engine_config,
            std::vector<CudnnDescriptor> parts, CudnnDescriptor plan);

  std::shared_ptr<const CudnnGraph> graph_;
  CudnnDescriptor engine_config_;
  std::vector<CudnnDescriptor> parts_;
  CudnnDescriptor plan_;
  std::size_t workspace_bytes_;
};

/// Which proposals, in which order: cuDNN's best guesses, or engines that take (almost) anything.
inline constexpr cudnnBackendHeurMode_t kCudnnHeuristics[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK};

/// Makes plans of the proposals that the rules allow and that finalize, in the order of the heuristics, until
/// take() says that it has enough. Returns why the last one that did not finalize did not; "" where all did.
std::string make_plans(const CudnnTarget& target, const std::shared_ptr<const CudnnGraph>& graph,
                       const EngineRules& rules, cudnnBackendHeurMode_t mode,
                       const std::function<bool(CudnnPlan)>& take);

}  // namespace convoy
