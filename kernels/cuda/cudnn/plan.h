// Execution plans for cuDNN operation graphs. cuDNN's heuristics propose engines with settings (knobs).
// Engines that compute less precisely than the type requires are rejected. An engine configuration that
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

#include "convoy/kernels/base/dtype.h"
#include "convoy/kernels/cuda/cudnn/descriptor.h"
#include "convoy/kernels/runtime/cuda/stream.h"

namespace convoy::kernels {

/// The target of plans: a GPU, or the description of a GPU.
class CudnnTarget {
 public:
  virtual ~CudnnTarget() = default;
  /// Sets the target in `descriptor` if its type depends on the GPU. Call it before the descriptor is
  /// finalized.
  virtual void configure(CudnnDescriptor& descriptor) const = 0;
  /// Prepares the calling thread to finalize plans for the target.
  virtual void make_current() const {}
};

/// A cuDNN handle that enqueues on one stream. At most one thread at a time may use it.
class CudnnHandle final : public CudnnTarget {
 public:
  explicit CudnnHandle(CudaStream& stream);
  ~CudnnHandle() override;
  CudnnHandle(const CudnnHandle&) = delete;
  CudnnHandle& operator=(const CudnnHandle&) = delete;

  cudnnHandle_t get() const { return handle_; }
  void configure(CudnnDescriptor& descriptor) const override;
  void make_current() const override { stream_.make_current(); }

 private:
  const CudaStream& stream_;
  cudnnHandle_t handle_ = nullptr;
};

/// A finalized operation graph with all descriptors that it was made of. cuDNN does not guarantee that a
/// descriptor copies its attributes, so graphs and plans keep them.
struct CudnnGraph {
  std::deque<CudnnDescriptor> parts;  // references to its elements stay valid
  CudnnDescriptor graph{CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR};
};

/// The engines that may compute on arrays of a type, decided by cuDNN's numerical notes:
///  - f32 must multiply f32: no tensor cores unless tf32 (they round operands to 10 bits), and never inputs
///    that are converted down, which may also have shorter exponents.
///  - f16 and bf16 must sum in f32: no reduced-precision reduction. No FFT and no Winograd, which transform
///    the inputs in half precision: that loses bits, and f16 overflows.
///  - f32 may use FFT, and Winograd with tiles of up to 6x6: their errors are a few times those of a sum in
///    any order (Lavin and Gray, arXiv:1509.09308, table 4). The errors of 13x13 tiles are larger, so these
///    are rejected.
///  - deterministic rejects engines that are noted as nondeterministic.
struct EngineRules {
  DType dtype = DType::f32;
  bool tf32 = false;
  bool deterministic = false;

  /// Returns whether an engine with these notes may be used.
  bool allow(std::span<const cudnnBackendNumericalNote_t> notes) const;
};

/// A finalized execution plan.
class CudnnPlan {
 public:
  /// Makes a plan from a finalized engine configuration. `parts` are descriptors that the configuration
  /// refers to. Returns nullopt and sets `reason` if the plan does not finalize.
  static std::optional<CudnnPlan> make(const CudnnTarget& target, std::shared_ptr<const CudnnGraph> graph,
                                       CudnnDescriptor engine_config, std::vector<CudnnDescriptor> parts,
                                       std::string& reason);

  /// Makes the plan that to_text() described. Returns nullopt if the text is malformed, if the plan is not
  /// valid for this graph, GPU and version of cuDNN, or if the rules forbid it.
  static std::optional<CudnnPlan> from_text(const CudnnTarget& target,
                                            std::shared_ptr<const CudnnGraph> graph, const EngineRules& rules,
                                            std::string_view text);
  /// Returns the plan as text, such as "engine 12 knobs 2=3 14=5 workspace 1048576": the engine's index, its
  /// knobs by type, and the workspace in bytes.
  std::string to_text() const;

  /// Makes the plan whose to_text() and code() are given, without compiling it. Returns nullopt and sets
  /// `reason` if the code is damaged, for another GPU, driver or version of cuDNN, or not that of the text,
  /// or if the rules forbid the engine.
  static std::optional<CudnnPlan> from_code(const CudnnTarget& target, const EngineRules& rules,
                                            std::string_view text, std::string_view code,
                                            std::string& reason);
  /// Returns the compiled code of a plan that cuDNN compiled at run time, and all else that from_code()
  /// needs: a JSON text of cuDNN in one line, about 200 kB. Returns "" for other plans, and if cuDNN does not
  /// provide it.
  std::string code() const;

  std::size_t workspace_bytes() const { return workspace_bytes_; }

  /// Enqueues the plan on the stream of `handle`. arrays[i] is the data of the tensor with id ids[i].
  /// `workspace` must have workspace_bytes() bytes. Returns "", or why cuDNN cannot run the plan. Throws
  /// DeviceError for invalid arguments.
  [[nodiscard]] std::string try_execute(const CudnnHandle& handle, const std::vector<std::int64_t>& ids,
                                        const std::vector<void*>& arrays, void* workspace) const;

 private:
  CudnnPlan(std::shared_ptr<const CudnnGraph> graph, CudnnDescriptor engine_config,
            std::vector<CudnnDescriptor> parts, CudnnDescriptor plan);

  std::string text_;  // of from_code(), whose configuration has more knobs; "": as the configuration
  std::shared_ptr<const CudnnGraph> graph_;
  CudnnDescriptor engine_config_;
  std::vector<CudnnDescriptor> parts_;
  CudnnDescriptor plan_;
  std::size_t workspace_bytes_;
};

/// The heuristics to use, in this order: cuDNN's best guesses, then fallback engines that support almost any
/// problem.
inline constexpr cudnnBackendHeurMode_t kCudnnHeuristics[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK};

/// Makes plans from the proposals that the rules allow, in the order of the heuristics. Calls accept() with
/// each plan that finalizes until it returns true. Returns why the last plan that failed to finalize failed,
/// or "" if all succeeded.
std::string make_plans(const CudnnTarget& target, const std::shared_ptr<const CudnnGraph>& graph,
                       const EngineRules& rules, cudnnBackendHeurMode_t mode,
                       const std::function<bool(CudnnPlan)>& accept);

/// Returns the plans of all proposals that the rules allow and that finalize, in the order of the heuristics.
/// Plans that are compiled at run time, for up to seconds each, are compiled by several threads. Each has a
/// target of its own, such as a handle: `target_of_thread`, called by the calling thread, which is number 0.
/// If there is none for another thread, it returns null, and fewer threads compile.
std::vector<CudnnPlan> make_all_plans(
    const std::function<const CudnnTarget*(std::size_t thread)>& target_of_thread,
    const std::shared_ptr<const CudnnGraph>& graph, const EngineRules& rules, cudnnBackendHeurMode_t mode);

}  // namespace convoy::kernels
