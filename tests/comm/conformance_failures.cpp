#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>

#include "tests/comm/conformance.h"
#include "tests/comm/device_values.h"
#include "tests/support/errors.h"
#include "tests/support/temp_folder.h"

namespace convoy::testing {
namespace {

using ::testing::HasSubstr;

// Deadlines, in seconds. Ranks that come must keep the short one on a machine that is busy elsewhere.
constexpr double kShort = 2;
constexpr double kLong = 60;    // a test that waits for this one has failed
constexpr double kAtOnce = 20;  // far more than it takes, far less than that

bool is_last(const Communicator& comm) { return comm.rank() == comm.size() - 1; }

std::string last_rank(const Communicator& comm) { return "rank " + std::to_string(comm.size() - 1); }

double seconds_of(const std::function<void()>& action) {
  const auto begin = std::chrono::steady_clock::now();
  action();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// Where ranks meet without a collective: a folder that rank 0 makes.
class Elsewhere {
 public:
  /// Takes a collective, a broadcast, to tell all where.
  explicit Elsewhere(Communicator& comm) : rank_(comm.rank()), size_(comm.size()) {
    std::vector<std::uint8_t> path(256);
    if (rank_ == 0) {
      const std::string mine = folder_.emplace().path();
      std::copy(mine.begin(), mine.end(), path.begin());
    }
    DeviceValues<std::uint8_t> shared(comm, path);
    comm.broadcast(shared.view(), 0);
    path = shared.read(comm);
    path_ = std::string(path.begin(), std::find(path.begin(), path.end(), 0));
  }

  /// Until all ranks have come here. Rank 0 takes the folder away then.
  void meet() {
    std::ofstream(path_ / std::to_string(rank_)).put('\n');
    const auto begin = std::chrono::steady_clock::now();
    while (!all_are_here()) {
      ASSERT_LT(std::chrono::steady_clock::now() - begin, std::chrono::duration<double>(kLong));
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    folder_.reset();
  }

 private:
  bool all_are_here() const {
    for (int rank = 0; rank < size_; ++rank)
      if (!std::filesystem::exists(path_ / std::to_string(rank))) return !std::filesystem::exists(path_);
    return true;
  }

  int rank_, size_;
  std::filesystem::path path_;
  std::optional<TempFolder> folder_;  // rank 0's
};

/// Waits for what was enqueued, and returns the error that it met.
std::string error_of(Communicator& comm) {
  wait_for(comm);
  return message_of<PeerError>([&] { comm.check_errors(); });
}

void expect_to_stay_failed(Communicator& comm, const std::string& error) {
  EXPECT_EQ(message_of<PeerError>([&] { comm.check_errors(); }), error);
  EXPECT_EQ(message_of<PeerError>([&] { comm.barrier(); }), error);
  EXPECT_EQ(message_of<PeerError>([&] { comm.finish(); }), error);
}

/// The last rank does something else than the others. Each is told what both do, and no data is touched.
void expect_disagreement(Communicator& comm, const char* of_others, const char* of_last,
                         const std::function<void(Communicator&, View)>& others,
                         const std::function<void(Communicator&, View)>& last) {
  DeviceValues<float> data(comm, std::vector<float>(16, 1.0F + static_cast<float>(comm.rank())));
  comm.barrier();  // so that the number is not everybody's first
  (is_last(comm) ? last : others)(comm, data.view());
  const std::string error = error_of(comm);
  EXPECT_THAT(error, HasSubstr(of_others));
  EXPECT_THAT(error, HasSubstr(of_last));
  EXPECT_THAT(error, HasSubstr(last_rank(comm)));
  expect_to_stay_failed(comm, error);
}

View first(const View& data, std::int64_t count) { return {data.data, {count}, data.dtype}; }

void another_count_is_an_error(std::unique_ptr<Communicator> comm) {
  expect_disagreement(
      *comm, "all-reduce 1 (16 f32)", "all-reduce 1 (15 f32)", [](auto& c, View data) { c.all_reduce(data); },
      [](auto& c, View data) { c.all_reduce(first(data, 15)); });
}

void no_elements_on_one_rank_is_an_error(std::unique_ptr<Communicator> comm) {
  expect_disagreement(
      *comm, "all-reduce 1 (16 f32)", "all-reduce 1 (0 f32)", [](auto& c, View data) { c.all_reduce(data); },
      [](auto& c, View data) { c.all_reduce(first(data, 0)); });
}

void another_type_is_an_error(std::unique_ptr<Communicator> comm) {
  expect_disagreement(
      *comm, "all-reduce 1 (16 f32)", "all-reduce 1 (16 bf16)",
      [](auto& c, View data) { c.all_reduce(data); },
      [](auto& c, View data) {
        c.all_reduce(View{data.data, data.shape, DType::bf16});
      });
}

void another_op_is_an_error(std::unique_ptr<Communicator> comm) {
  expect_disagreement(
      *comm, "all-reduce 1 (16 f32)", "broadcast 1 (16 f32 from rank 0)",
      [](auto& c, View data) { c.all_reduce(data); }, [](auto& c, View data) { c.broadcast(data, 0); });
}

void another_root_is_an_error(std::unique_ptr<Communicator> comm) {
  expect_disagreement(
      *comm, "broadcast 1 (16 f32 from rank 0)", "broadcast 1 (16 f32 from rank 1)",
      [](auto& c, View data) { c.broadcast(data, 0); }, [](auto& c, View data) { c.broadcast(data, 1); });
}

void a_skipped_collective_is_an_error(std::unique_ptr<Communicator> comm) {
  expect_disagreement(
      *comm, "all-reduce 1 (16 f32)", "all-reduce 1 (8 f32)",
      [](auto& c, View data) {
        c.all_reduce(data);
        c.all_reduce(first(data, 8));
      },
      [](auto& c, View data) { c.all_reduce(first(data, 8)); });
}

void a_rank_that_does_not_come_is_named(std::unique_ptr<Communicator> comm) {
  DeviceValues<float> data(*comm, {1.0F, 2.0F});
  Elsewhere elsewhere(*comm);
  if (is_last(*comm)) return elsewhere.meet();
  std::string error;
  const double seconds = seconds_of([&] {
    comm->all_reduce(data.view());
    error = error_of(*comm);
  });
  EXPECT_THAT(error, HasSubstr("all-reduce 1 (2 f32)"));
  EXPECT_THAT(error, HasSubstr("for " + last_rank(*comm)));
  EXPECT_LT(seconds, kAtOnce) << error;
  expect_to_stay_failed(*comm, error);
  elsewhere.meet();
}

void a_rank_that_comes_late_is_waited_for(std::unique_ptr<Communicator> comm) {
  if (is_last(*comm)) std::this_thread::sleep_for(std::chrono::milliseconds(300));
  DeviceValues<float> data(*comm, {1.0F});
  comm->all_reduce(data.view());
  EXPECT_EQ(data.read(*comm)[0], static_cast<float>(comm->size()));
  comm->finish();
}

void a_rank_that_leaves_is_named_at_once(std::unique_ptr<Communicator> comm) {
  DeviceValues<float> data(*comm, {1.0F});
  comm->all_reduce(data.view());
  EXPECT_EQ(data.read(*comm)[0], static_cast<float>(comm->size()));
  if (is_last(*comm)) return;
  std::string error;
  const double seconds = seconds_of([&] {
    comm->all_reduce(data.view());
    error = error_of(*comm);
  });
  EXPECT_THAT(error, HasSubstr(last_rank(*comm)));
  EXPECT_LT(seconds, kAtOnce);
  expect_to_stay_failed(*comm, error);
}

void the_reason_to_give_up_reaches_all(std::unique_ptr<Communicator> comm) {
  if (is_last(*comm)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // the others wait by now
    comm->abort("no space left on the device of " + last_rank(*comm));
  }
  std::string error;
  const double seconds = seconds_of([&] { error = message_of<PeerError>([&] { comm->barrier(); }); });
  EXPECT_THAT(error, HasSubstr("no space left on the device of " + last_rank(*comm)));
  EXPECT_LT(seconds, kAtOnce);
  expect_to_stay_failed(*comm, error);
}

constexpr ConformanceCase kDisagreements[] = {
    {"AnotherCountIsAnError", 2, kLong, another_count_is_an_error},
    {"NoElementsOnOneRankIsAnError", 2, kLong, no_elements_on_one_rank_is_an_error},
    {"AnotherTypeIsAnError", 2, kLong, another_type_is_an_error},
    {"AnotherOpIsAnError", 2, kLong, another_op_is_an_error},
    {"AnotherRootIsAnError", 2, kLong, another_root_is_an_error},
    {"ASkippedCollectiveIsAnError", 2, kLong, a_skipped_collective_is_an_error},
    {"ARankThatDoesNotComeIsNamed", 2, kShort, a_rank_that_does_not_come_is_named},
    {"ARankThatComesLateIsWaitedFor", 2, kLong, a_rank_that_comes_late_is_waited_for},
};

constexpr ConformanceCase kDepartures[] = {
    {"ARankThatLeavesIsNamedAtOnce", 2, kLong, a_rank_that_leaves_is_named_at_once},
    {"TheReasonToGiveUpReachesAll", 2, kLong, the_reason_to_give_up_reaches_all},
};

}  // namespace

std::span<const ConformanceCase> disagreement_cases() { return kDisagreements; }
std::span<const ConformanceCase> departure_cases() { return kDepartures; }

}  // namespace convoy::testing
