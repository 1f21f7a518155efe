// The emulator's cuDNN and cuBLASLt: what tests may set and ask of them. Which engines there are, and what
// the heuristics say of them, is made up: enough of each kind that a caller has to cope with.
#pragma once

#include <cublasLt.h>
#include <cudnn.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>

namespace convoy::emulator {

/// Convolution engines, by their global index. Each sums in an order of its own, which shows in the last
/// bits.
namespace cudnn_engine {
/// No notes, no workspace, any shape and layout; the only one of the fallback heuristics.
inline constexpr std::int64_t kPlain = 0;
/// Listed, but its plans cannot be finalized.
inline constexpr std::int64_t kRefused = 2;
/// Noted NONDETERMINISTIC: another order in each execution.
inline constexpr std::int64_t kNondeterministic = 3;
/// The fastest, if only its workspace could be had.
inline constexpr std::int64_t kGreedy = 5;
/// Noted TENSOR_CORE, which is all that the real library (9.19, sm_90) says of engines that round f32's
/// factors to tf32, as this one does. Only for channels that fill 16 bytes.
inline constexpr std::int64_t kTensorCore = 7;
/// Two knobs, CUDNN_KNOB_TYPE_TILE_SIZE (0, 1) and CUDNN_KNOB_TYPE_SPLIT_K (1, 2, 4), listed with two choices
/// of them; a workspace that depends on the second.
inline constexpr std::int64_t kKnobs = 11;
/// Global indices are below it.
inline constexpr std::int64_t kCount = 12;
}  // namespace cudnn_engine

struct CudnnSettings {
  std::size_t version = CUDNN_VERSION;
  std::size_t most_results = 64;  // configurations that the heuristics list, at most, in any mode
  std::set<std::int64_t> refused = {cudnn_engine::kRefused};  // engines whose plans are NOT_SUPPORTED
  std::set<std::int64_t> failing = {};                        // engines whose executions fail
  std::size_t greedy_workspace = std::size_t{64} << 30;       // of cudnn_engine::kGreedy
  // Convolutions followed by a bias and a ReLU: whether kKnobs takes them, in the half types and in f32. No
  // other engine does.
  bool fuses_half = true;
  bool fuses_f32 = false;
  /// What events between operations see as an execution's time, in ms of the GPU.
  std::map<std::int64_t, double> execution_ms = {{cudnn_engine::kPlain, 600},
                                                 {cudnn_engine::kNondeterministic, 400},
                                                 {cudnn_engine::kGreedy, 100},
                                                 {cudnn_engine::kTensorCore, 300},
                                                 {cudnn_engine::kKnobs, 200}};
  /// The same of one that fuses. Less than a convolution alone: what the host takes for a bias or a ReLU
  /// after that would be too little to tell the two apart on a busy machine.
  double fused_ms = 50;
};

/// Products, by the number that an algorithm's first word is. Listed fastest first.
namespace cublaslt_algorithm {
/// Operands and leading dimensions that are multiples of 16 bytes.
inline constexpr std::uint64_t kAligned = 21;
/// K in two parts, whose sums meet in a workspace.
inline constexpr std::uint64_t kSplit = 23;
/// Anything.
inline constexpr std::uint64_t kPlain = 20;
}  // namespace cublaslt_algorithm

struct CublasLtSettings {
  std::size_t version = CUBLAS_VERSION;
  std::set<std::uint64_t> absent = {};   // algorithms that the heuristics never list
  std::set<std::uint64_t> failing = {};  // algorithms whose products fail
};

struct VendorSettings {
  CudnnSettings cudnn;
  CublasLtSettings cublaslt;
};

VendorSettings vendor_settings();
/// Runs what is queued, then changes the settings.
void set(const VendorSettings& settings);

/// Operations that have run, by engine and by algorithm, since the last reset_vendor_counts(); each replay of
/// a graph counts.
struct VendorCounts {
  std::map<std::int64_t, int> convolutions;
  std::map<std::uint64_t, int> products;
};
VendorCounts vendor_counts();
void reset_vendor_counts();

/// Puts back the settings that it found.
class ScopedVendorSettings {
 public:
  explicit ScopedVendorSettings(const VendorSettings& now) : before_(vendor_settings()) { set(now); }
  ~ScopedVendorSettings() { set(before_); }
  ScopedVendorSettings(const ScopedVendorSettings&) = delete;
  ScopedVendorSettings& operator=(const ScopedVendorSettings&) = delete;

 private:
  VendorSettings before_;
};

}  // namespace convoy::emulator
