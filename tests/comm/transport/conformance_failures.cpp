// Conformance tests of failures: inconsistent, missing and exiting ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>

#include "tests/comm/device_values.h"
#include "tests/comm/transport/conformance.h"
#include "tests/testing/support/errors.h"
#include "tests/testing/support/temp_directory.h"

namespace convoy::testing {
namespace {

using ::testing::HasSubstr;

// Timeouts in seconds.
constexpr double kLong = 60;    // a test that reaches this timeout fails
constexpr double kAtOnce = 20;  // far more than necessary, far less than kLong

bool is_last(const dist::Communicator& comm) { return comm.rank() == comm.size() - 1; }

std::string last_rank(const dist::Communicator& comm) { return "rank " + std::to_string(comm.size() - 1); }

/// Returns the error that `action` returns, which must not take long.
std::string error_at_once(const std::function<std::string()>& action) {
  const auto begin = std::chrono::steady_clock::now();
  std::string error = action();
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), kAtOnce)
      << error;
  return error;
}

/// A barrier that does not use the communicator: ranks create files in a directory of rank 0.
class FileBarrier {
 public:
  /// Broadcasts the path of the directory through `comm`.
  explicit FileBarrier(dist::Communicator& comm) : rank_(comm.rank()), size_(comm.size()) {
    std::vector<std::uint8_t> path(256);
    if (rank_ == 0) {
      const std::string local = directory_.emplace().path();
      std::copy(local.begin(), local.end(), path.begin());
    }
    DeviceValues<std::uint8_t> shared(comm, path);
    comm.broadcast(shared.view(), 0);
    path = shared.read(comm);
    path_ = std::string(path.begin(), std::find(path.begin(), path.end(), 0));
  }

  /// Blocks until all ranks have called it. Rank 0 then removes the directory.
  void wait() {
    std::ofstream(path_ / std::to_string(rank_)).put('\n');
    const auto begin = std::chrono::steady_clock::now();
    while (!all_ranks_are_here()) {
      ASSERT_LT(std::chrono::steady_clock::now() - begin, std::chrono::duration<double>(kLong));
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    directory_.reset();
  }

 private:
  bool all_ranks_are_here() const {
    for (int rank = 0; rank < size_; ++rank)
      if (!std::filesystem::exists(path_ / std::to_string(rank))) return !std::filesystem::exists(path_);
    return true;
  }

  int rank_, size_;
  std::filesystem::path path_;
  std::optional<TempDirectory> directory_;  // rank 0's
};

/// Waits for all enqueued work and returns its error.
std::string error_of(dist::Communicator& comm) {
  wait_for(comm);
  return message_of<PeerError>([&] { comm.check_errors(); });
}

/// Launches an all-reduce, and returns its error, for which no rank may wait long.
std::string error_of_sum(dist::Communicator& comm, View data) {
  return error_at_once([&] {
    comm.all_reduce(data);
    return error_of(comm);
  });
}

void expect_to_stay_failed(dist::Communicator& comm, const std::string& error) {
  EXPECT_EQ(message_of<PeerError>([&] { comm.check_errors(); }), error);
  EXPECT_EQ(message_of<PeerError>([&] { comm.barrier(); }), error);
  EXPECT_EQ(message_of<PeerError>([&] { comm.finish(); }), error);
}

using Launch = void (*)(dist::Communicator&, View data);

/// All-reduces the first elements of `data`.
template <std::int64_t kCount>
void sum(dist::Communicator& comm, View data) {
  comm.all_reduce({data.data, {kCount}, data.dtype});
}
void sum_as_bf16(dist::Communicator& comm, View data) {
  comm.all_reduce({data.data, data.shape, DType::bf16});
}
template <int kRoot>
void broadcast(dist::Communicator& comm, View data) {
  comm.broadcast(data, kRoot);
}
void sum_twice(dist::Communicator& comm, View data) {
  sum<16>(comm, data);
  sum<8>(comm, data);
}

constexpr char kSumOf16[] = "all-reduce 1 (16 f32)", kSumOf15[] = "all-reduce 1 (15 f32)",
               kSumOf8[] = "all-reduce 1 (8 f32)", kSumOfNone[] = "all-reduce 1 (0 f32)",
               kSumOfBf16[] = "all-reduce 1 (16 bf16)", kFromRank0[] = "broadcast 1 (16 f32 from rank 0)",
               kFromRank1[] = "broadcast 1 (16 f32 from rank 1)";

/// Runs kLast on the last rank and kOthers on the other ranks. The error on every rank contains both
/// signatures.
template <Launch kOthers, const char* kOfOthers, Launch kLast, const char* kOfLast>
void disagreement_is_an_error(std::unique_ptr<dist::Communicator> comm) {
  DeviceValues<float> data(*comm, std::vector<float>(16, 1.0F + static_cast<float>(comm->rank())));
  comm->barrier();  // so that the sequence number is not 0
  (is_last(*comm) ? kLast : kOthers)(*comm, data.view());
  const std::string error = error_of(*comm);
  EXPECT_THAT(error, HasSubstr(kOfOthers));
  EXPECT_THAT(error, HasSubstr(kOfLast));
  EXPECT_THAT(error, HasSubstr(last_rank(*comm)));
  expect_to_stay_failed(*comm, error);
}

void missing_rank_is_reported(std::unique_ptr<dist::Communicator> comm) {
  DeviceValues<float> data(*comm, {1.0F, 2.0F});
  FileBarrier file_barrier(*comm);
  if (is_last(*comm)) return file_barrier.wait();
  const std::string error = error_of_sum(*comm, data.view());
  EXPECT_THAT(error, HasSubstr("all-reduce 1 (2 f32)"));
  EXPECT_THAT(error, HasSubstr("for " + last_rank(*comm)));
  expect_to_stay_failed(*comm, error);
  file_barrier.wait();
}

void late_rank_is_no_error(std::unique_ptr<dist::Communicator> comm) {
  if (is_last(*comm)) std::this_thread::sleep_for(std::chrono::milliseconds(300));
  DeviceValues<float> data(*comm, {1.0F});
  comm->all_reduce(data.view());
  EXPECT_EQ(data.read(*comm)[0], static_cast<float>(comm->size()));
  comm->finish();
}

void exiting_rank_is_reported_at_once(std::unique_ptr<dist::Communicator> comm) {
  DeviceValues<float> data(*comm, {1.0F});
  comm->all_reduce(data.view());
  EXPECT_EQ(data.read(*comm)[0], static_cast<float>(comm->size()));
  if (is_last(*comm)) return;
  const std::string error = error_of_sum(*comm, data.view());
  EXPECT_THAT(error, HasSubstr(last_rank(*comm)));
  expect_to_stay_failed(*comm, error);
}

void abort_reason_reaches_all_ranks(std::unique_ptr<dist::Communicator> comm) {
  if (is_last(*comm)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // the other ranks are waiting
    comm->abort("no space left on the device of " + last_rank(*comm));
  }
  const std::string error = error_at_once([&] { return message_of<PeerError>([&] { comm->barrier(); }); });
  EXPECT_THAT(error, HasSubstr("no space left on the device of " + last_rank(*comm)));
  expect_to_stay_failed(*comm, error);
}

/// Calls poll_peers() until it returns true or throws, and returns the error.
std::string poll_until_news(dist::Communicator& comm) {
  try {
    while (!comm.poll_peers()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  } catch (const PeerError& error) {
    return error.what();
  }
  return "";
}

/// Communicators of GPUs do not know of waiting ranks.
void poll_reports_waiting_rank(std::unique_ptr<dist::Communicator> comm) {
  comm->barrier();
  if (is_last(*comm) && comm->device().kind == DeviceKind::cpu) {
    EXPECT_EQ(poll_until_news(*comm), "");
  }
  comm->barrier();
  comm->finish();
}

/// No collective is in flight when the last rank leaves.
void expect_poll_to_report(dist::Communicator& comm, const std::string& text) {
  EXPECT_THAT(error_at_once([&] { return poll_until_news(comm); }), HasSubstr(text));
  EXPECT_THAT(message_of<PeerError>([&] { comm.poll_peers(); }), HasSubstr(text));
  EXPECT_THAT(message_of<PeerError>([&] { comm.finish(); }), HasSubstr(text));
}

void poll_reports_exited_rank(std::unique_ptr<dist::Communicator> comm) {
  FileBarrier(*comm).wait();  // the other ranks have left the broadcast
  if (!is_last(*comm)) expect_poll_to_report(*comm, last_rank(*comm));
}

void poll_reports_abort(std::unique_ptr<dist::Communicator> comm) {
  FileBarrier(*comm).wait();  // the other ranks have left the broadcast
  const std::string reason = "no space left on the device of " + last_rank(*comm);
  if (is_last(*comm)) comm->abort(reason);
  expect_poll_to_report(*comm, reason);
}

}  // namespace

double short_timeout() {
  const char* const text = std::getenv("CONVOY_SHORT_TIMEOUT");
  return text != nullptr ? std::stod(text) : 2;
}

std::span<const ConformanceCase> disagreement_cases() {
  static const ConformanceCase cases[] = {
      {"DifferentCountsAreAnError", 2, kLong, disagreement_is_an_error<sum<16>, kSumOf16, sum<15>, kSumOf15>},
      {"EmptyViewOnOneRankIsAnError", 2, kLong,
       disagreement_is_an_error<sum<16>, kSumOf16, sum<0>, kSumOfNone>},
      {"DifferentTypesAreAnError", 2, kLong,
       disagreement_is_an_error<sum<16>, kSumOf16, sum_as_bf16, kSumOfBf16>},
      {"DifferentCollectivesAreAnError", 2, kLong,
       disagreement_is_an_error<sum<16>, kSumOf16, broadcast<0>, kFromRank0>},
      {"DifferentRootsAreAnError", 2, kLong,
       disagreement_is_an_error<broadcast<0>, kFromRank0, broadcast<1>, kFromRank1>},
      {"SkippedCollectiveIsAnError", 2, kLong,
       disagreement_is_an_error<sum_twice, kSumOf16, sum<8>, kSumOf8>},
      {"MissingRankIsReported", 2, short_timeout(), missing_rank_is_reported},
      {"LateRankIsNoError", 2, kLong, late_rank_is_no_error},
      {"PollReportsWaitingRank", 2, kLong, poll_reports_waiting_rank},
  };
  return cases;
}

std::span<const ConformanceCase> departure_cases() {
  static constexpr ConformanceCase cases[] = {
      {"ExitingRankIsReportedAtOnce", 2, kLong, exiting_rank_is_reported_at_once},
      {"AbortReasonReachesAllRanks", 2, kLong, abort_reason_reaches_all_ranks},
      {"PollReportsExitedRank", 2, kLong, poll_reports_exited_rank},
      {"PollReportsAbort", 2, kLong, poll_reports_abort},
  };
  return cases;
}

}  // namespace convoy::testing
