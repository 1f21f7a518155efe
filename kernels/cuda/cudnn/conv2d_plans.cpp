// Chooses, autotunes and runs algorithms for convolutions.
#include "convoy/kernels/cuda/cudnn/conv2d_plans.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <set>
#include <utility>
#include <vector>

#include "convoy/kernels/base/check.h"
#include "convoy/kernels/cuda/cudnn/channel_padding.h"
#include "convoy/kernels/cuda/primitives/launch.h"
#include "convoy/kernels/cuda/primitives/timing.h"
#include "convoy/kernels/elementwise.h"
#include "convoy/kernels/reduce.h"
#include "convoy/kernels/runtime/library_versions.h"

namespace convoy::kernels {
namespace {

constexpr std::int64_t kTensorCoreDepth = 16;  // channels that a tensor core multiplies at a time
constexpr std::int64_t kChannelUnit = 32;      // multiples of it have kernels for Hopper GPUs
constexpr double kMinimumGain = 1.03;          // over cuDNN's first proposal; times vary by as much
constexpr std::size_t kAnyWorkspace = std::numeric_limits<std::size_t>::max();

EngineRules rules_for(const CudaStream& stream, const Conv2dProblem& problem) {
  const CudaOptions& options = stream.cuda_options();
  return {.dtype = problem.dtype, .tf32 = options.tf32, .deterministic = options.deterministic};
}

std::string key_of(const CudaStream& stream, const Conv2dProblem& problem) {
  const bool tf32 = stream.cuda_options().tf32 && problem.dtype == DType::f32;
  return problem.text() + (tf32 ? " tf32" : "");
}

double flops_of(const Conv2dProblem& problem) {
  const ConvSizes& s = problem.sizes;
  return 2.0 * static_cast<double>(s.n * s.oh * s.ow * s.o) *
         static_cast<double>(s.kh * s.kw * s.i / s.groups);
}

/// Returns the problem with kTensorCoreDepth input channels instead of fewer, such as those of images, or
/// with a multiple of kChannelUnit; nullopt if copies with so many must not replace the arrays (an added
/// gradient would be rounded twice), or would be larger by more than a half.
std::optional<Conv2dProblem> padded_problem(const Conv2dProblem& problem) {
  const std::int64_t given = problem.sizes.i;
  const std::int64_t channels =
      given < kTensorCoreDepth ? kTensorCoreDepth : (given + kChannelUnit - 1) / kChannelUnit * kChannelUnit;
  if (!is_half(problem.dtype) || problem.has_epilogue() || problem.mode == GradMode::accumulate ||
      problem.sizes.groups != 1 || channels == given ||
      (channels > kTensorCoreDepth && 2 * channels > 3 * given))
    return std::nullopt;
  Conv2dProblem padded = problem;
  padded.sizes.i = channels;
  padded.alignment = kCudnnAlignment;
  return padded;
}

}  // namespace

bool Conv2dPlans::run(CudaStream& stream, const Conv2dProblem& problem, const Conv2dArrays& arrays) {
  stream.make_current();
  const Entry* found = entries_.find(problem);
  const bool is_current =
      found != nullptr &&
      (found->is_final || (!stream.autotune() && found->revision == stream.algorithm_cache().revision()));
  if (!is_current) {
    const std::optional<Entry> chosen = choose(stream, problem, arrays);
    if (!chosen) return run_first(stream, problem, arrays, kAnyWorkspace);
    found = &entries_.insert(problem, *chosen);
  }
  const Entry entry = *found;  // a copy, since the calls below may change the table
  const Outcome outcome = enqueue(stream, problem, arrays, entry);
  if (outcome == Outcome::enqueued) return true;
  if (entry.method != Method::plan) return false;
  return run_first(stream, problem, arrays,
                   outcome == Outcome::no_memory ? entry.plan->workspace_bytes() : kAnyWorkspace);
}

Conv2dPlans::Outcome Conv2dPlans::enqueue(CudaStream& stream, const Conv2dProblem& problem,
                                          const Conv2dArrays& arrays, const Entry& entry) {
  switch (entry.method) {
    case Method::plan: return try_enqueue(stream, problem, arrays, entry.plan);
    case Method::separate:
      return run_separately(stream, problem, arrays) ? Outcome::enqueued : Outcome::failed;
    case Method::padded: return run_padded(stream, problem, arrays) ? Outcome::enqueued : Outcome::failed;
    case Method::loops: return Outcome::failed;
  }
  return Outcome::failed;
}

std::optional<Conv2dPlans::Entry> Conv2dPlans::choose(CudaStream& stream, const Conv2dProblem& problem,
                                                      const Conv2dArrays& arrays) {
  if (stream.cuda_options().deterministic) return std::nullopt;
  if (const auto stored = stream.algorithm_cache().find(key_of(stream, problem))) {
    for (const Entry& entry : alternatives(problem))
      if (entry.to_text() == *stored) return entry;
    auto plan = restored(stream, problem, *stored);
    if (plan && !has_failed(problem, *plan))
      return Entry{.plan = std::make_shared<const CudnnPlan>(*std::move(plan)), .is_final = true};
  }
  return stream.autotune() ? fastest(stream, problem, arrays) : std::nullopt;
}

std::string Conv2dPlans::Entry::to_text() const {
  switch (method) {
    case Method::plan: return plan->to_text();
    case Method::separate: return "separate";
    case Method::padded: return "padded";
    case Method::loops: return "loops";
  }
  return "";
}

std::vector<Conv2dPlans::Entry> Conv2dPlans::alternatives(const Conv2dProblem& problem) {
  std::vector<Entry> all;
  if (problem.has_epilogue()) all.push_back({.method = Method::separate, .is_final = true});
  if (padded_problem(problem)) all.push_back({.method = Method::padded, .is_final = true});
  return all;
}

std::optional<CudnnPlan> Conv2dPlans::restored(CudaStream& stream, const Conv2dProblem& problem,
                                               const std::string& text) {
  const std::string key = key_of(stream, problem);
  const EngineRules rules = rules_for(stream, problem);
  if (const std::string code = stream.algorithm_cache().code(key); !code.empty()) {
    std::string reason;
    std::optional<CudnnPlan> plan = CudnnPlan::from_code(handle_, rules, text, code, reason);
    if (plan) return plan;
    if (!std::exchange(has_reported_code_, true))
      stream.warn(
          fmt::format("compiled code in the algorithm cache cannot be used on cuda:{} and is compiled "
                      "again, that of {} for {}: {}",
                      stream.device(), text, key, reason));
  }
  std::optional<CudnnPlan> plan =
      CudnnPlan::from_text(handle_, make_conv2d_graph(handle_, problem), rules, text);
  if (plan) stream.algorithm_cache().insert(key, text, plan->code());
  return plan;
}

std::optional<Conv2dPlans::Entry> Conv2dPlans::fastest(CudaStream& stream, const Conv2dProblem& problem,
                                                       Conv2dArrays arrays) {
  std::optional<cuda::Scratch> temporary;  // each run of each plan would add to the gradient
  if (problem.mode == GradMode::accumulate) {
    const ConvSizes& s = problem.sizes;
    const bool of_data = problem.direction == Conv2dDirection::backward_data;
    const std::int64_t elements = of_data ? s.n * s.h * s.w * s.i : s.o * s.kh * s.kw * s.group_inputs();
    temporary.emplace(stream, static_cast<std::size_t>(elements) * size_of(problem.dtype));
    (of_data ? arrays.x : arrays.filter) = temporary->as<void>();
  }
  std::vector<Entry> entries;
  const auto graph = make_conv2d_graph(handle_, problem);
  const auto handle_of_thread = [&](std::size_t thread) -> const CudnnTarget* {
    if (thread == 0) return &handle_;
    try {
      while (compilers_.size() < thread) compilers_.emplace_back(stream);
    } catch (const DeviceError&) {  // no memory
      cudaGetLastError();           // clears the error
      return nullptr;
    }
    return &compilers_[thread - 1];
  };
  const char* const setting = std::getenv("CONVOY_CUDNN_HEURISTICS");  // mode B takes ten times as long as A
  const std::string_view wanted = setting == nullptr ? "a" : setting;
  check(wanted == "a" || wanted == "ab", "CONVOY_CUDNN_HEURISTICS: found '{}', expected a or ab", wanted);
  std::set<std::string> texts;
  for (const auto mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_B, CUDNN_HEUR_MODE_FALLBACK}) {
    if (mode == CUDNN_HEUR_MODE_B ? wanted == "a" : !entries.empty()) continue;
    for (CudnnPlan& plan : make_all_plans(handle_of_thread, graph, rules_for(stream, problem), mode))
      if (!has_failed(problem, plan) && texts.insert(plan.to_text()).second)
        entries.push_back({.plan = std::make_shared<const CudnnPlan>(std::move(plan)), .is_final = true});
  }
  const bool is_large = flops_of(problem) >= stream.local<MinimumPaddedFlops>().value;
  for (const Entry& entry : alternatives(problem))
    if (is_large || entry.method == Method::separate) entries.push_back(entry);

  std::vector<cuda::Candidate> candidates;
  for (const Entry& entry : entries)
    candidates.push_back([&] {
      try {
        return enqueue(stream, problem, arrays, entry) == Outcome::enqueued;
      } catch (const DeviceError&) {  // no memory; if the GPU has failed, the next call reports it
        if (entry.method == Method::plan) throw;
        return false;
      }
    });
  const std::vector<double> ms = cuda::measure_ms(stream, candidates);
  auto best = std::min_element(ms.begin(), ms.end());
  if (best != ms.end() && ms.front() <= kMinimumGain * *best) best = ms.begin();
  if (best == ms.end() || std::isinf(*best)) return std::nullopt;
  const Entry& fastest = entries[static_cast<std::size_t>(best - ms.begin())];
  stream.algorithm_cache().insert(key_of(stream, problem), fastest.to_text(),
                                  fastest.plan != nullptr ? fastest.plan->code() : "");
  return fastest;
}

// The plan replaces a chosen plan that has no memory on this stream: a failing allocation releases all cached
// memory before it throws, and no training step should pay for that again.
bool Conv2dPlans::run_first(CudaStream& stream, const Conv2dProblem& problem, const Conv2dArrays& arrays,
                            std::size_t workspace_limit) {
  Entry entry{.method = Method::loops, .revision = stream.algorithm_cache().revision()};
  std::string reason;
  for (const cudnnBackendHeurMode_t mode : kCudnnHeuristics) {
    const auto try_plan = [&](CudnnPlan made) {
      const Plan plan = std::make_shared<const CudnnPlan>(std::move(made));
      if (plan->workspace_bytes() >= workspace_limit) return false;
      const Outcome outcome = try_enqueue(stream, problem, arrays, plan);
      if (outcome == Outcome::no_memory) workspace_limit = plan->workspace_bytes();
      if (outcome == Outcome::enqueued) entry.plan = plan;
      return outcome == Outcome::enqueued;
    };
    const std::string refusal =
        make_plans(handle_, make_conv2d_graph(handle_, problem), rules_for(stream, problem), mode, try_plan);
    if (!refusal.empty()) reason = refusal;
    if (entry.plan != nullptr) break;
  }
  const bool lacks_memory = workspace_limit != kAnyWorkspace;
  if (entry.plan != nullptr) {
    entry.method = Method::plan;
  } else if (problem.has_epilogue() && run_separately(stream, problem, arrays)) {
    entry.method = Method::separate;
  } else if (lacks_memory) {
    const cuda::Scratch failing(stream, workspace_limit);  // throws with the amount that is missing
  }
  entry.is_final = stream.cuda_options().deterministic || stream.autotune() || lacks_memory ||
                   entry.method == Method::loops;
  report(stream, problem, entry, reason);
  entries_.insert(problem, entry);
  return entry.method != Method::loops;
}

bool Conv2dPlans::run_separately(CudaStream& stream, const Conv2dProblem& problem,
                                 const Conv2dArrays& arrays) {
  Conv2dProblem plain = problem;
  plain.bias = plain.relu = false;
  if (!run(stream, plain, arrays)) return false;
  const ConvSizes& s = problem.sizes;
  const View y{arrays.y, {s.n, s.oh, s.ow, s.o}, problem.dtype};
  if (problem.bias)
    add_bias(stream, y, ConstView(arrays.bias, {s.o}, problem.dtype), y, problem.relu);
  else
    unary_forward(stream, UnaryOp::relu, y, y);
  return true;
}

bool Conv2dPlans::run_padded(CudaStream& stream, const Conv2dProblem& problem, const Conv2dArrays& arrays) {
  const Conv2dProblem padded = *padded_problem(problem);
  const auto view = [&](void* data, bool is_x, const ConvSizes& s) {
    return View{data, is_x ? Shape{s.n, s.h, s.w, s.i} : Shape{s.o, s.kh, s.kw, s.i}, problem.dtype};
  };
  const View x = view(arrays.x, true, problem.sizes), filter = view(arrays.filter, false, problem.sizes);
  const auto bytes_of = [&](bool is_x) {
    return static_cast<std::size_t>(view(nullptr, is_x, padded.sizes).shape.numel()) * size_of(problem.dtype);
  };
  const cuda::Scratch wide_x(stream, bytes_of(true)), wide_filter(stream, bytes_of(false));
  const View from_x = view(wide_x.as<void>(), true, padded.sizes);
  const View from_filter = view(wide_filter.as<void>(), false, padded.sizes);
  if (problem.direction != Conv2dDirection::backward_data) channel_padding::pad_channels(stream, x, from_x);
  if (problem.direction != Conv2dDirection::backward_filter)
    channel_padding::pad_channels(stream, filter, from_filter);
  if (!run(stream, padded, {from_x.data, from_filter.data, arrays.bias, arrays.y})) return false;
  if (problem.direction == Conv2dDirection::backward_data) channel_padding::cut_channels(stream, from_x, x);
  if (problem.direction == Conv2dDirection::backward_filter)
    channel_padding::cut_channels(stream, from_filter, filter);
  return true;
}

Conv2dPlans::Outcome Conv2dPlans::try_enqueue(CudaStream& stream, const Conv2dProblem& problem,
                                              const Conv2dArrays& arrays, const Plan& plan) {
  if (has_failed(problem, *plan)) return Outcome::failed;
  std::optional<cuda::Scratch> workspace;
  try {
    workspace.emplace(stream, plan->workspace_bytes());
  } catch (const DeviceError&) {
    return Outcome::no_memory;
  }
  const std::string failure = plan->try_execute(handle_, conv2d_ids(problem),
                                                conv2d_pointers(problem, arrays), workspace->as<void>());
  if (stream.is_capturing()) captured_plans_.insert(plan);
  if (failure.empty()) return Outcome::enqueued;

  const std::string text = plan->to_text();
  const std::string why = fmt::format("{} of {} cannot run {} on cuda:{}: {}", text, cudnn_version_text(),
                                      key_of(stream, problem), stream.device(), failure);
  Failures& failures = failures_[problem];
  failures.plans.insert(text);
  if (failures.first.empty()) failures.first = why;
  // cuDNN may have captured a part of the plan, or made a call that a capture does not permit.
  if (stream.is_capturing()) throw CaptureError(why);
  cudaGetLastError();    // clears the error of a call that cuDNN made
  stream.synchronize();  // throws if the GPU has failed: then no other plan can run
  return Outcome::failed;
}

bool Conv2dPlans::has_failed(const Conv2dProblem& problem, const CudnnPlan& plan) const {
  const auto found = failures_.find(problem);
  return found != failures_.end() && found->second.plans.contains(plan.to_text());
}

void Conv2dPlans::report(CudaStream& stream, const Conv2dProblem& problem, const Entry& entry,
                         const std::string& reason) {
  const auto found = failures_.find(problem);
  if (found == failures_.end() && entry.method != Method::loops) return;
  // Another convolution replaces this one, and is reported: the one without bias and ReLU, or one that
  // overwrites.
  const bool is_replaced = problem.has_epilogue() || problem.mode == GradMode::accumulate;
  if (is_replaced && entry.method == Method::loops) return;
  Failures& failures = failures_[problem];
  if (std::exchange(failures.is_reported, true)) return;
  if (failures.first.empty())
    failures.first =
        fmt::format("no engine of {} computes {} on cuda:{}{}{}", cudnn_version_text(),
                    key_of(stream, problem), stream.device(), reason.empty() ? "" : ": ", reason);
  const std::string instead = entry.method == Method::separate ? "bias and ReLU run after the convolution"
                              : entry.method == Method::loops  ? "plain loops compute it, which are slow"
                                                               : entry.to_text() + " replaces it";
  stream.warn(fmt::format("{}; {}", failures.first, instead));
}

}  // namespace convoy::kernels
