#include "apps/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "comm/broadcast.h"
#include "comm/host.h"
#include "engine/io/file.h"

namespace convoy {
namespace {

// Of a text, gathered at a time: communicators hold every rank's piece in memory on every rank.
constexpr std::size_t kPieceBytes = std::size_t{1} << 20;

/// Everybody's text by rank, on rank 0, of any length.
std::vector<std::string> gather_large(Communicator& comm, const std::string& mine) {
  std::size_t longest = 0;
  for (const std::string& bytes : comm.gather(std::to_string(mine.size())))
    longest = std::max<std::size_t>(longest, std::stoull(bytes));
  longest = std::stoull(broadcast_text(comm, std::to_string(longest)));
  std::vector<std::string> texts(comm.rank() == 0 ? static_cast<std::size_t>(comm.size()) : 0);
  for (std::size_t begin = 0; begin < longest; begin += kPieceBytes) {
    const std::vector<std::string> pieces =
        comm.gather(begin < mine.size() ? mine.substr(begin, kPieceBytes) : "");
    for (std::size_t rank = 0; rank < texts.size(); ++rank) texts[rank] += pieces[rank];
  }
  return texts;
}

}  // namespace

void start_trace(Profiler& profiler, Communicator* comm) {
  if (comm != nullptr) comm->barrier();
  profiler.start_clock();
}

void trace_buckets(Profiler& profiler, const std::vector<BucketTime>& times,
                   Profiler::Clock::time_point origin) {
  const auto span = [](double ms) {
    return std::chrono::duration_cast<Profiler::Clock::duration>(
        std::chrono::duration<double, std::milli>(ms));
  };
  for (const BucketTime& time : times)
    profiler.add("gradients",
                 fmt::format("bucket {} ({:.1f} MB)", time.number, static_cast<double>(time.bytes) * 1e-6),
                 "communication", origin + span(time.begin_ms), span(time.end_ms - time.begin_ms));
}

void write_trace(const Profiler& profiler, Communicator* comm, const std::string& file) {
  if (file.empty()) return;
  const int rank = comm == nullptr ? 0 : comm->rank();
  std::string mine = profiler.trace_events(rank, fmt::format("rank {} on {}", rank, this_host().name));
  std::vector<std::string> all;
  if (comm == nullptr) {
    all.push_back(std::move(mine));
  } else {
    all = gather_large(*comm, mine);
  }
  if (rank == 0) write_file_atomically(file, chrome_trace_of(std::move(all)));
}

}  // namespace convoy
