// Chooses, autotunes and runs cuDNN plans for convolutions.
#include "convoy/kernels/cuda/cudnn/conv2d_plans.h"

#include <algorithm>
#include <array>
#include <exception>
#include <limits>
#include <optional>
#include <utility>

#include "convoy/kernels/base/check.h"
#include "convoy/kernels/cuda/primitives/launch.h"
#include "convoy/kernels/elementwise.h"
#include "convoy/kernels/reduce.h"
#include "convoy/kernels/runtime/library_versions.h"

namespace convoy::kernels {
namespace {

constexpr std::size_t kTimedPlans = 8;  // the heuristics order plans well; later ones are rarely fastest
constexpr std::size_t kTimedRuns = 5;   // the median is used
constexpr std::string_view kSeparate = "separate";

EngineRules rules_for(const CudaStream& stream, const Conv2dProblem& problem) {
  const CudaOptions& options = stream.cuda_options();
  return {.dtype = problem.dtype, .tf32 = options.tf32, .deterministic = options.deterministic};
}

std::string key_of(const CudaStream& stream, const Conv2dProblem& problem) {
  const bool tf32 = stream.cuda_options().tf32 && problem.dtype == DType::f32;
  return problem.text() + (tf32 ? " tf32" : "");
}

/// Returns the time of f(), which enqueues work, in milliseconds. It is the median of kTimedRuns runs, after
/// a warm-up run that loads code and memory. All runs are enqueued before waiting for the first, so that the
/// GPU does not wait for the host between runs. Blocks until the GPU has finished.
template <class F>
double measure(CudaStream& stream, const F& f) {
  struct Run {
    CudaEvent begin, end;
    explicit Run(int device) : begin(device, EventTiming::on), end(device, EventTiming::on) {}
  };
  f();
  std::vector<std::unique_ptr<Run>> runs;
  for (std::size_t run = 0; run < kTimedRuns; ++run) {
    runs.push_back(std::make_unique<Run>(stream.device()));
    stream.record(runs.back()->begin);
    f();
    stream.record(runs.back()->end);
  }
  std::array<double, kTimedRuns> times{};
  std::transform(runs.begin(), runs.end(), times.begin(),
                 [](const auto& run) { return elapsed_ms(run->begin, run->end); });
  std::nth_element(times.begin(), times.begin() + kTimedRuns / 2, times.end());
  return times[kTimedRuns / 2];
}

}  // namespace

void Conv2dPlans::run(CudaStream& stream, const Conv2dProblem& problem, const Conv2dArrays& arrays) {
  stream.make_current();
  const Entry* entry = entries_.find(problem);
  const bool is_current =
      entry != nullptr &&
      (entry->is_final || (!stream.autotune() && entry->revision == stream.algorithm_cache().revision()));
  if (!is_current) entry = &entries_.insert(problem, choose(stream, problem, arrays));
  enqueue(stream, problem, arrays, Plan(entry->plan));  // a copy, since the call may change the table
}

std::string Conv2dPlans::for_each_plan(const CudaStream& stream, const Conv2dProblem& problem,
                                       cudnnBackendHeurMode_t mode, const std::function<bool(Plan)>& accept) {
  return make_plans(
      handle_, make_conv2d_graph(handle_, problem), rules_for(stream, problem), mode,
      [&](CudnnPlan plan) { return accept(std::make_shared<const CudnnPlan>(std::move(plan))); });
}

Conv2dPlans::Entry Conv2dPlans::choose(CudaStream& stream, const Conv2dProblem& problem,
                                       const Conv2dArrays& arrays) {
  Entry chosen;
  if (stream.cuda_options().deterministic) {
    chosen = first(stream, problem);
    chosen.is_final = true;
    return chosen;
  }
  if (const auto stored = stream.algorithm_cache().find(key_of(stream, problem))) {
    if (problem.has_epilogue() && *stored == kSeparate) return {.plan = nullptr, .is_final = true};
    auto plan = CudnnPlan::from_text(handle_, make_conv2d_graph(handle_, problem), rules_for(stream, problem),
                                     *stored);
    if (plan) return {.plan = std::make_shared<const CudnnPlan>(*std::move(plan)), .is_final = true};
  }
  chosen = stream.autotune() ? fastest(stream, problem, arrays) : first(stream, problem);
  chosen.revision = stream.algorithm_cache().revision();
  return chosen;
}

Conv2dPlans::Entry Conv2dPlans::first(CudaStream& stream, const Conv2dProblem& problem) {
  Entry guess;
  std::string reason;
  for (const cudnnBackendHeurMode_t mode : kCudnnHeuristics) {
    reason = for_each_plan(stream, problem, mode, [&](Plan plan) {
      guess.plan = std::move(plan);
      return true;
    });
    if (guess.plan != nullptr) return guess;
  }
  if (problem.has_epilogue()) return guess;  // no engine fuses the epilogue: null means "separate"
  fail<DeviceError>("no engine of {} computes {} on cuda:{}{}{}", cudnn_version_text(),
                    key_of(stream, problem), stream.device(), reason.empty() ? "" : ": ", reason);
}

Conv2dPlans::Entry Conv2dPlans::fastest(CudaStream& stream, const Conv2dProblem& problem,
                                        const Conv2dArrays& arrays) {
  std::vector<Plan> plans;
  for (const cudnnBackendHeurMode_t mode : kCudnnHeuristics) {
    for_each_plan(stream, problem, mode, [&](Plan plan) {
      plans.push_back(std::move(plan));
      return plans.size() == kTimedPlans;
    });
    if (!plans.empty()) break;
  }
  if (problem.has_epilogue()) plans.push_back(nullptr);
  if (plans.empty()) return first(stream, problem);  // throws with the reason

  double best = std::numeric_limits<double>::infinity();
  Entry chosen{.plan = plans.front()};
  std::exception_ptr failure;
  for (const Plan& plan : plans) {
    bool has_memory = true;
    try {
      const double time = measure(stream, [&] {
        if (plan == nullptr) return enqueue_separately(stream, problem, arrays);
        has_memory = has_memory && try_enqueue(stream, problem, arrays, plan);
      });
      if (!has_memory || time >= best) continue;
      best = time;
      chosen = {.plan = plan, .is_final = true};
    } catch (const DeviceError&) {  // the heuristics may propose an engine that fails to run
      failure = std::current_exception();
    }
  }
  if (!chosen.is_final && failure) std::rethrow_exception(failure);
  if (chosen.is_final)
    stream.algorithm_cache().insert(key_of(stream, problem),
                                    chosen.plan != nullptr ? chosen.plan->to_text() : std::string(kSeparate));
  return chosen;
}

void Conv2dPlans::enqueue(CudaStream& stream, const Conv2dProblem& problem, const Conv2dArrays& arrays,
                          const Plan& plan) {
  if (plan == nullptr) return enqueue_separately(stream, problem, arrays);
  if (!try_enqueue(stream, problem, arrays, plan))
    enqueue_with_less_workspace(stream, problem, arrays, plan->workspace_bytes());
}

void Conv2dPlans::enqueue_separately(CudaStream& stream, const Conv2dProblem& problem,
                                     const Conv2dArrays& arrays) {
  run(stream, problem.without_epilogue(), arrays);
  const ConvSizes& s = problem.sizes;
  const View y{arrays.y, {s.n, s.oh, s.ow, s.o}, problem.dtype};
  if (problem.bias)
    add_bias(stream, y, ConstView(arrays.bias, {s.o}, problem.dtype), y, problem.relu);
  else
    relu_forward(stream, y, y);
}

// The plan with less workspace replaces the chosen plan on this stream: a failing allocation releases all
// cached memory before it throws, and no training step should pay for that again.
void Conv2dPlans::enqueue_with_less_workspace(CudaStream& stream, const Conv2dProblem& problem,
                                              const Conv2dArrays& arrays, std::size_t workspace_bytes) {
  Entry smaller{.plan = nullptr, .is_final = true};
  for (const cudnnBackendHeurMode_t mode : kCudnnHeuristics) {
    for_each_plan(stream, problem, mode, [&](const Plan& plan) {
      if (plan->workspace_bytes() >= workspace_bytes) return false;
      workspace_bytes = plan->workspace_bytes();
      if (!try_enqueue(stream, problem, arrays, plan)) return false;
      smaller.plan = plan;
      return true;
    });
    if (smaller.plan != nullptr) break;
  }
  if (smaller.plan == nullptr) {
    if (!problem.has_epilogue())
      const cuda::Scratch failing(stream, workspace_bytes);  // throws with the amount that is missing
    enqueue_separately(stream, problem, arrays);
  }
  entries_.insert(problem, smaller);
}

bool Conv2dPlans::try_enqueue(CudaStream& stream, const Conv2dProblem& problem, const Conv2dArrays& arrays,
                              const Plan& plan) {
  std::optional<cuda::Scratch> workspace;
  try {
    workspace.emplace(stream, plan->workspace_bytes());
  } catch (const DeviceError&) {
    return false;
  }
  plan->execute(handle_, conv2d_ids(problem), conv2d_pointers(problem, arrays), workspace->as<void>());
  if (stream.is_capturing()) captured_plans_.insert(plan);
  return true;
}

}  // namespace convoy::kernels
