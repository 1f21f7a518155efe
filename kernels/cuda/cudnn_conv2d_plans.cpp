#include "kernels/cuda/cudnn_conv2d_plans.h"

#include <algorithm>
#include <array>
#include <exception>
#include <limits>
#include <optional>
#include <utility>

#include "kernels/cuda/launch.h"
#include "kernels/elementwise.h"
#include "kernels/reduce.h"
#include "kernels/runtime/check.h"
#include "kernels/runtime/library_versions.h"

namespace convoy {
namespace {

constexpr std::size_t kTimedPlans = 8;  // the heuristics' order is a good one; later plans rarely win
constexpr std::size_t kTimedRuns = 5;   // of which the median counts
constexpr std::string_view kSeparate = "separate";

EngineRules rules_for(const CudaStream& stream, const Conv2dProblem& problem) {
  const CudaOptions& options = stream.cuda_options();
  return {.dtype = problem.dtype, .tf32 = options.tf32, .deterministic = options.deterministic};
}

std::string key_of(const CudaStream& stream, const Conv2dProblem& problem) {
  const bool tf32 = stream.cuda_options().tf32 && problem.dtype == DType::f32;
  return problem.text() + (tf32 ? " tf32" : "");
}

/// Milliseconds of f(), which enqueues: the median after a first run that is not counted, in which code and
/// memory are fetched. All runs are enqueued before the first is waited for, so that the GPU need not wait
/// for the host in between.
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
      (entry->settled || (!stream.may_time() && entry->revision == stream.choices().revision()));
  if (!is_current) entry = &entries_.insert(problem, choose(stream, problem, arrays));
  enqueue(stream, problem, arrays, Plan(entry->plan));  // a copy: whatever follows may change the table
}

std::string Conv2dPlans::propose(const CudaStream& stream, const Conv2dProblem& problem,
                                 cudnnBackendHeurMode_t mode, const std::function<bool(Plan)>& take) {
  return make_plans(handle_, make_conv2d_graph(handle_, problem), rules_for(stream, problem), mode,
                    [&](CudnnPlan plan) { return take(std::make_shared<const CudnnPlan>(std::move(plan))); });
}

Conv2dPlans::Entry Conv2dPlans::choose(CudaStream& stream, const Conv2dProblem& problem,
                                       const Conv2dArrays& arrays) {
  Entry chosen;
  if (stream.cuda_options().deterministic) {
    chosen = first(stream, problem);
    chosen.settled = true;
    return chosen;
  }
  if (const auto stored = stream.choices().find(key_of(stream, problem))) {
    if (problem.has_epilogue() && *stored == kSeparate) return {.plan = nullptr, .settled = true};
    auto plan = CudnnPlan::from_text(handle_, make_conv2d_graph(handle_, problem), rules_for(stream, problem),
                                     *stored);
    if (plan) return {.plan = std::make_shared<const CudnnPlan>(*std::move(plan)), .settled = true};
  }
  chosen = stream.may_time() ? fastest(stream, problem, arrays) : first(stream, problem);
  chosen.revision = stream.choices().revision();
  return chosen;
}

Conv2dPlans::Entry Conv2dPlans::first(CudaStream& stream, const Conv2dProblem& problem) {
  Entry guess;
  std::string why;
  for (const cudnnBackendHeurMode_t mode : kCudnnHeuristics) {
    why = propose(stream, problem, mode, [&](Plan plan) {
      guess.plan = std::move(plan);
      return true;
    });
    if (guess.plan != nullptr) return guess;
  }
  if (problem.has_epilogue()) return guess;  // nothing fuses it
  fail<DeviceError>("no engine of {} computes {} on cuda:{}{}{}", cudnn_version_text(),
                    key_of(stream, problem), stream.device(), why.empty() ? "" : ": ", why);
}

Conv2dPlans::Entry Conv2dPlans::fastest(CudaStream& stream, const Conv2dProblem& problem,
                                        const Conv2dArrays& arrays) {
  std::vector<Plan> plans;
  for (const cudnnBackendHeurMode_t mode : kCudnnHeuristics) {
    propose(stream, problem, mode, [&](Plan plan) {
      plans.push_back(std::move(plan));
      return plans.size() == kTimedPlans;
    });
    if (!plans.empty()) break;
  }
  if (problem.has_epilogue()) plans.push_back(nullptr);
  if (plans.empty()) return first(stream, problem);  // which says why there is none

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
      chosen = {.plan = plan, .settled = true};
    } catch (const DeviceError&) {  // an engine that proposes itself and then does not run
      failure = std::current_exception();
    }
  }
  if (!chosen.settled && failure) std::rethrow_exception(failure);
  if (chosen.settled)
    stream.choices().insert(key_of(stream, problem),
                            chosen.plan != nullptr ? chosen.plan->to_text() : std::string(kSeparate));
  return chosen;
}

void Conv2dPlans::enqueue(CudaStream& stream, const Conv2dProblem& problem, const Conv2dArrays& arrays,
                          const Plan& plan) {
  if (plan == nullptr) return enqueue_separately(stream, problem, arrays);
  if (!try_enqueue(stream, problem, arrays, plan))
    enqueue_with_less(stream, problem, arrays, plan->workspace_bytes());
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

// The plan that is found takes the place of the chosen one on this stream: a failing allocation gives all
// cached memory back before it gives up, which no step of a training should have to wait for twice.
void Conv2dPlans::enqueue_with_less(CudaStream& stream, const Conv2dProblem& problem,
                                    const Conv2dArrays& arrays, std::size_t workspace_bytes) {
  Entry smaller{.plan = nullptr, .settled = true};
  for (const cudnnBackendHeurMode_t mode : kCudnnHeuristics) {
    propose(stream, problem, mode, [&](const Plan& plan) {
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
      const cuda::Scratch failing(stream, workspace_bytes);  // says what is missing
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
  if (stream.is_capturing()) recorded_.insert(plan);
  return true;
}

}  // namespace convoy
