#include "convoy/apps/train/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <string_view>
#include <tuple>

#include "convoy/comm/bootstrap/host.h"
#include "convoy/comm/parallel/broadcast.h"
#include "convoy/engine/io/file.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/runtime/event.h"

namespace convoy {
namespace {

// Bytes gathered at a time: every rank holds the pieces of all ranks in memory.
constexpr std::size_t kPieceBytes = std::size_t{1} << 20;

/// Gathers texts of any length. Returns the texts by rank on rank 0, and nothing on other ranks.
std::vector<std::string> gather_large(dist::Communicator& comm, const std::string& local) {
  std::size_t longest = 0;
  for (const std::string& bytes : comm.gather_object(std::to_string(local.size())))
    longest = std::max<std::size_t>(longest, std::stoull(bytes));
  longest = std::stoull(dist::broadcast_text(comm, std::to_string(longest)));
  std::vector<std::string> texts(comm.rank() == 0 ? static_cast<std::size_t>(comm.size()) : 0);
  for (std::size_t begin = 0; begin < longest; begin += kPieceBytes) {
    const std::vector<std::string> pieces =
        comm.gather_object(begin < local.size() ? local.substr(begin, kPieceBytes) : "");
    for (std::size_t rank = 0; rank < texts.size(); ++rank) texts[rank] += pieces[rank];
  }
  return texts;
}

Profiler::Clock::duration span(double ms) {
  return std::chrono::duration_cast<Profiler::Clock::duration>(std::chrono::duration<double, std::milli>(ms));
}

}  // namespace

std::filesystem::path trace_file(const TrainOptions& options) {
  return options.trace == "auto" ? *options.out + "/trace.json" : options.trace;
}

void start_trace(Profiler& profiler, dist::Communicator* comm) {
  if (comm != nullptr) comm->barrier();
  profiler.start_clock();
}

void trace_buckets(Profiler& profiler, const std::vector<dist::BucketTime>& times,
                   Profiler::Clock::time_point origin) {
  for (const dist::BucketTime& time : times)
    profiler.add("gradients",
                 fmt::format("bucket {} ({:.1f} MB)", time.number, static_cast<double>(time.bytes) * 1e-6),
                 "communication", origin + span(time.begin_ms), span(time.end_ms - time.begin_ms));
}

void trace_step(const TrainContext& context, const TrainStep& step, const dist::GradientReducer& reducer) {
  if (!context.is_gpu() && !context.is_distributed()) return;
  Event now = Event::timed(context.device.stream());
  now.record();
  now.wait();
  const Profiler::Clock::time_point origin = Profiler::Clock::now();
  trace_buckets(*context.profiler, reducer.bucket_times(now), origin);
  if (!context.is_gpu()) return;
  const TrainStep::Phases phases = step.phases();
  auto begin = origin - span(phases.forward + phases.backward + phases.communication + phases.optimizer);
  for (const auto& [name, category, ms] :
       {std::tuple("forward", "compute", phases.forward), std::tuple("backward", "compute", phases.backward),
        std::tuple("wait for gradients", "communication", phases.communication),
        std::tuple("optimizer", "compute", phases.optimizer)}) {
    if (context.is_distributed() || std::string_view(category) == "compute")
      context.profiler->add(context.device.name(), name, category, begin, span(ms));
    begin += span(ms);
  }
}

void write_trace(const Profiler& profiler, dist::Communicator* comm, const std::filesystem::path& file) {
  if (file.empty()) return;
  const int rank = comm == nullptr ? 0 : comm->rank();
  const std::string local =
      profiler.trace_events(rank, fmt::format("rank {} on {}", rank, dist::this_host().name));
  std::vector<std::string> all = comm == nullptr ? std::vector{local} : gather_large(*comm, local);
  if (rank != 0) return;
  std::error_code error;
  if (file.has_parent_path()) std::filesystem::create_directories(file.parent_path(), error);
  if (error) fail<OutputError>("{}: {}", file.parent_path().string(), error.message());
  io::write_file_atomically(file, chrome_trace_of(std::move(all)));
}

}  // namespace convoy
