// The test interface of the emulated cuDNN and cuBLASLt: settings and counters. The engines are invented:
// they cover each kind of engine that a caller has to handle. How many configurations the heuristics list,
// and how many of them are of one engine, is as in the real library (9.19, sm_90).
#pragma once

#include <cublasLt.h>
#include <cudnn.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <set>

namespace convoy::emulator {

/// The convolution engines, by global index. Each adds in a different order, which shows in the last bits.
namespace cudnn_engine {
/// No notes, no workspace, any shape and layout. The only engine of the fallback heuristics.
inline constexpr std::int64_t kPlain = 0;
/// Listed, but its plans cannot be finalized.
inline constexpr std::int64_t kRefused = 2;
/// Has the note NONDETERMINISTIC: adds in another order in each execution.
inline constexpr std::int64_t kNondeterministic = 3;
/// The fastest engine, but its workspace is larger than the memory.
inline constexpr std::int64_t kGreedy = 5;
/// Has the note TENSOR_CORE and rounds f32 factors to tf32. The real library (9.19, sm_90) gives such engines
/// no other note. Requires that the channels fill multiples of 16 bytes. Has one knob,
/// CUDNN_KNOB_TYPE_TILE_SIZE (0 to 24). The heuristics list 16 to 25 configurations, 7 or more of them first.
inline constexpr std::int64_t kTensorCore = 7;
/// Has two knobs, CUDNN_KNOB_TYPE_TILE_SIZE (0 to 18) and CUDNN_KNOB_TYPE_SPLIT_K (1, 2, 4). The heuristics
/// list 5 to 19 configurations. The workspace depends on the second knob. Has the note RUNTIME_COMPILATION:
/// an engine configuration can be finalized as a plan only once.
inline constexpr std::int64_t kKnobs = 11;
/// The number of engines: all global indices are below it.
inline constexpr std::int64_t kCount = 12;
}  // namespace cudnn_engine

struct CudnnSettings {
  std::size_t version = CUDNN_VERSION;
  std::size_t max_results = 64;  // maximum number of configurations that the heuristics list
  using Failures = std::map<std::int64_t, cudnnStatus_t>;
  Failures refused = {{cudnn_engine::kRefused, CUDNN_STATUS_NOT_SUPPORTED}};  // engines without plans
  Failures failing = {};                                                      // engines whose executions fail
  Failures failing_executions = {};  // calls of cudnnBackendExecute() of this process that fail, from 0
  std::map<std::int64_t, int> finalize_ms =
      {};  // time to make a plan of an engine, on the host, if not restored
  int max_compiled_plans = std::numeric_limits<int>::max();  // of this process; compiling further ones fails
  std::size_t max_handles = 1000;                            // creating further ones fails
  std::size_t greedy_workspace = std::size_t{64} << 30;      // of cudnn_engine::kGreedy
  // Whether kKnobs accepts convolutions followed by a bias and a ReLU, in half precision and in f32. No other
  // engine accepts them.
  bool fuses_half = true;
  bool fuses_f32 = false;
  bool accumulates = true;  // whether engines add a convolution to an array (beta = 1)
  /// The simulated execution time of each engine in ms, as measured by events. A plan takes 5 % more per unit
  /// between its knob CUDNN_KNOB_TYPE_TILE_SIZE and `best_tile`.
  std::map<std::int64_t, double> execution_ms = {{cudnn_engine::kPlain, 600},
                                                 {cudnn_engine::kNondeterministic, 400},
                                                 {cudnn_engine::kGreedy, 100},
                                                 {cudnn_engine::kTensorCore, 300},
                                                 {cudnn_engine::kKnobs, 200}};
  /// The simulated execution time of a fused convolution in ms. It is below that of any separate convolution:
  /// the time of a separate bias or ReLU kernel would be too short to distinguish the two on a busy machine.
  double fused_ms = 50;
  std::int64_t best_tile = 0;
};

/// The GEMM algorithms, by the value of the first word of cublasLtMatmulAlgo_t. The heuristics list the
/// fastest first.
namespace cublaslt_algorithm {
/// Requires operands and leading dimensions that are multiples of 16 bytes.
inline constexpr std::uint64_t kAligned = 21;
/// Splits K into two parts, whose sums are added in a workspace.
inline constexpr std::uint64_t kSplit = 23;
/// Accepts any GEMM.
inline constexpr std::uint64_t kPlain = 20;
}  // namespace cublaslt_algorithm

struct CublasLtSettings {
  std::size_t version = CUBLAS_VERSION;
  std::set<std::uint64_t> absent = {};   // algorithms that the heuristics never list
  std::set<std::uint64_t> failing = {};  // algorithms whose GEMMs fail
};

struct VendorSettings {
  /// Whether the libraries compute. Otherwise all results are 0, which takes little time.
  bool compute = true;
  CudnnSettings cudnn;
  CublasLtSettings cublaslt;
};

/// Returns the current settings. At the start, CONVOY_EMULATED_CUDNN_FAILURE=N makes execution N fail, and
/// CONVOY_EMULATED_CUDNN_COMPILATIONS=N is max_compiled_plans.
VendorSettings vendor_settings();
/// Runs all queued work that can run, then changes the settings.
void set(const VendorSettings& settings);

/// What happened since the last reset_vendor_counts().
struct VendorCounts {
  // Executed operations, by engine and by algorithm. Each replay of a graph counts.
  std::map<std::int64_t, int> convolutions;
  std::map<std::uint64_t, int> gemms;
  int compiled_plans = 0;        // made of engines with the note RUNTIME_COMPILATION
  int restored_plans = 0;        // made of a JSON text
  int max_concurrent_plans = 0;  // maximum number of threads that finalized plans at the same time
};
VendorCounts vendor_counts();
void reset_vendor_counts();

/// Changes the settings and restores the previous ones in the destructor.
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
