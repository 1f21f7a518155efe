#include "convoy/kernels/cuda/primitives/timing.h"

#include <algorithm>
#include <cstddef>
#include <deque>
#include <limits>

#include "convoy/kernels/cuda/primitives/launch.h"

namespace convoy::kernels::cuda {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kClose = 1.5;           // of the fastest time
constexpr std::size_t kFurtherRuns = 4;  // with the first one, five
// For each run. A tenth of a millisecond at 2 GHz: about three times what the host needs to enqueue a
// convolution.
constexpr long long kDelayCycles = 200'000;
constexpr unsigned kPollNanoseconds = 20'000;

__global__ void delay_kernel(long long cycles) {
  const long long begin = clock64();
  while (clock64() - begin < cycles) __nanosleep(kPollNanoseconds);
}

/// Runs each of the chosen candidates `count` times, in turn, and appends to the times of each.
void run_all(CudaStream& stream, const std::vector<Candidate>& candidates,
             const std::vector<std::size_t>& chosen, std::size_t count,
             std::vector<std::vector<double>>& times) {
  struct Run {
    Run(int device, std::size_t of)
        : candidate(of), begin(device, EventTiming::on), end(device, EventTiming::on) {}
    std::size_t candidate;
    CudaEvent begin, end;
    bool is_enqueued = false;
  };
  std::deque<Run> runs;
  for (std::size_t i = 0; i < count; ++i)
    for (const std::size_t candidate : chosen) runs.emplace_back(stream.device(), candidate);
  launch(stream, 1, 1, 0, delay_kernel, kDelayCycles * static_cast<long long>(runs.size()));
  for (Run& run : runs) {
    stream.record(run.begin);
    run.is_enqueued = candidates[run.candidate]();
    stream.record(run.end);
  }
  for (const Run& run : runs)
    times[run.candidate].push_back(run.is_enqueued ? elapsed_ms(run.begin, run.end) : kNever);
}

}  // namespace

std::vector<double> measure_ms(CudaStream& stream, const std::vector<Candidate>& candidates) {
  stream.wait_for_neighbour();
  std::vector<std::vector<double>> times(candidates.size());
  std::vector<std::size_t> chosen;
  for (std::size_t candidate = 0; candidate < candidates.size(); ++candidate)
    if (candidates[candidate]()) chosen.push_back(candidate);
  run_all(stream, candidates, chosen, 1, times);

  double best = kNever;
  for (const std::size_t candidate : chosen) best = std::min(best, times[candidate].front());
  std::erase_if(chosen, [&](std::size_t candidate) { return !(times[candidate].front() <= kClose * best); });
  run_all(stream, candidates, chosen, kFurtherRuns, times);

  std::vector<double> medians(candidates.size(), kNever);
  for (const std::size_t candidate : chosen) {
    std::vector<double>& of = times[candidate];
    std::nth_element(of.begin(), of.begin() + kFurtherRuns / 2, of.end());
    medians[candidate] = of[kFurtherRuns / 2];
  }
  return medians;
}

}  // namespace convoy::kernels::cuda
