// Tests of collectives on memory of a shared-memory communicator (Communicator::allocate()), between forked processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <atomic>
#include <cmath>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <functional>
#include <optional>
#include <vector>

#include "convoy/comm/core/view_parts.h"
#include "convoy/comm/transport/shm/shm_communicator.h"
#include "tests/comm/device_values.h"
#include "tests/comm/process_size.h"
#include "tests/testing/support/errors.h"
#include "tests/testing/support/rank_processes.h"

namespace convoy::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::unique_ptr<dist::Communicator> make(const ForkedRank& rank, const dist::ShmOptions& options = {}) {
  return dist::make_shm_communicator(rank.rank, rank.size, rank.exchange, options);
}

/// Counts the steps of the current collective, and calls a function after each.
class StepMonitor final : public dist::CollectiveMonitor {
 public:
  explicit StepMonitor(std::function<void(int)> after_step = nullptr) : after_step_(std::move(after_step)) {}
  void launched(const dist::CollectiveSignature&) noexcept override {}
  void started(const dist::CollectiveSignature&) noexcept override { steps_ = 0; }
  void progressed() noexcept override {
    ++steps_;
    if (after_step_) after_step_(steps_);
  }
  void completed(const dist::CollectiveSignature&) noexcept override {}
  int steps() const { return steps_; }

 private:
  std::function<void(int)> after_step_;
  std::atomic<int> steps_ = 0;
};

// All ranks enter a sum in place, and leave it when all sums are written.
constexpr int kStepsInPlace = 2;

/// Fills a view with bytes that depend on the rank: values of all magnitudes, but neither infinite nor NaN.
void fill(View view, int rank) {
  std::uint32_t state = 12345U + 977U * static_cast<std::uint32_t>(rank);
  dispatch(kAllTypes, view.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (std::int64_t i = 0; i < view.numel(); ++i) {
      state = state * 1664525U + 1013904223U;
      const float mantissa = static_cast<float>(static_cast<std::int32_t>(state)) * 0x1p-31F;
      view.as<T>()[i] = static_cast<T>(std::ldexp(mantissa, static_cast<int>(state >> 8) % 12));
    }
  });
}

/// Data in the memory of a communicator, `offset` bytes behind the begin of a block.
struct SharedData {
  SharedData(dist::Communicator& comm, std::int64_t count, DType dtype, std::size_t offset)
      : memory(comm.allocate(static_cast<std::size_t>(count) * size_of(dtype) + offset)),
        view{static_cast<char*>(memory.get()) + offset, {count}, dtype} {}
  std::shared_ptr<void> memory;
  View view;
};

class ShmInPlace : public ::testing::TestWithParam<int> {};

/// The sums have the bits of those that are computed by copies, whatever the offsets of the data in the windows are.
TEST_P(ShmInPlace, EqualsCollectivesByCopies) {
  run_forked_ranks(GetParam(), [](const ForkedRank& rank) {
    const auto monitor = std::make_shared<StepMonitor>();
    const auto comm = make(rank, {.comm = {.monitor = monitor}, .chunk_bytes = 4096});
    for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i32})
      for (const std::int64_t count : {1, 7, 17, 100, 5003, 40001})
        for (const int elements_before : {0, rank.rank}) {
          const SharedData data(*comm, count, dtype,
                                static_cast<std::size_t>(elements_before) * size_of(dtype));
          std::vector<char> copy(data.view.bytes());
          const View by_copies{copy.data(), data.view.shape, dtype};
          for (const View& each : {data.view, by_copies}) {
            fill(each, rank.rank);
            comm->all_reduce(each);
            comm->synchronize();
            EXPECT_EQ(monitor->steps() == kStepsInPlace, each.data == data.view.data);
          }
          EXPECT_EQ(std::memcmp(data.view.data, copy.data(), copy.size()), 0)
              << "all-reduce of " << count << " " << to_string(dtype);

          const std::int64_t part = count / rank.size;
          const View in = dist::subview(data.view, 0, part * rank.size);
          std::vector<char> sums[2];
          for (std::vector<char>& sum : sums) {
            const bool is_in_place = &sum == &sums[0];
            sum.resize(static_cast<std::size_t>(part) * size_of(dtype));
            fill(in, rank.rank);
            if (!is_in_place) std::memcpy(copy.data(), in.data, in.bytes());
            comm->reduce_scatter(is_in_place ? in : dist::subview(by_copies, 0, in.numel()),
                                 View{sum.data(), {part}, dtype});
            comm->synchronize();
          }
          EXPECT_EQ(sums[0], sums[1]) << "reduce-scatter of " << count << " " << to_string(dtype);
        }
    comm->finish();
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, ShmInPlace, ::testing::Values(2, 3, 4, 5));

TEST(ShmInPlace, FallsBackToCopiesUnlessAllDataAreShared) {
  run_forked_ranks(3, [](const ForkedRank& rank) {
    const auto monitor = std::make_shared<StepMonitor>();
    const auto comm = make(rank, {.comm = {.monitor = monitor}});
    const SharedData data(*comm, 1000, DType::f32, 0);
    std::vector<float> ordinary(1000);
    for (int ordinary_rank = 0; ordinary_rank < 3; ++ordinary_rank) {
      const View view = rank.rank == ordinary_rank ? View{ordinary.data(), {1000}, DType::f32} : data.view;
      std::fill_n(view.as<float>(), 1000, static_cast<float>(rank.rank + 1));
      comm->all_reduce(view);
      comm->synchronize();
      EXPECT_GT(monitor->steps(), kStepsInPlace);
      for (int i = 0; i < 1000; ++i) ASSERT_EQ(view.as<float>()[i], 6);
    }
    // The memory of another communicator is ordinary memory.
    const auto other = comm->split(0);
    const SharedData of_other(*other, 10, DType::f32, 0);
    comm->all_reduce(of_other.view);
    comm->synchronize();
    EXPECT_GT(monitor->steps(), kStepsInPlace);
    other->finish();
    comm->finish();
  });
}

TEST(ShmInPlace, NeedsNoSharedMemoryForOneRank) {
  run_forked_ranks(1, [](const ForkedRank& rank) {
    const auto comm = make(rank);
    EXPECT_EQ(comm->allocate(100), nullptr);
    comm->finish();
  });
}

/// Rank 1 changes an element of the first half of its data, which rank 0 sums, after `changed_after_step` steps of an
/// all-reduce or a reduce-scatter. Returns what both ranks report.
void expect_reported(int changed_after_step, bool is_all_reduce, const std::string& expected) {
  run_forked_ranks(2, [&](const ForkedRank& rank) {
    float* values = nullptr;
    const auto monitor = std::make_shared<StepMonitor>([&](int steps) {
      if (steps != changed_after_step || values == nullptr) return;
      if (rank.rank == 1) values[20'000] = std::nextafter(values[20'000], 100.F);
      rank.wait_for_peers();
    });
    const auto comm = make(rank, {.comm = {.monitor = monitor}});
    const SharedData data(*comm, 100'000, DType::f32, 0);
    values = data.view.as<float>();
    std::fill_n(values, 100'000, 1.0F);
    comm->set_bucket(7);
    if (is_all_reduce)
      comm->all_reduce(data.view);
    else
      comm->reduce_scatter(data.view, dist::subview(data.view, 50'000 * rank.rank, 50'000));
    const std::string error = message_of<PeerError>([&] {
      comm->synchronize();
      values = nullptr;
      comm->barrier();  // where the other rank may learn of it
    });
    EXPECT_THAT(error, HasSubstr(expected));
    EXPECT_THAT(error, HasSubstr(", bucket 7 on rank "));
  });
}

TEST(ShmInPlace, ReportsContributionsThatChange) {
  expect_reported(1, true, "rank 1 sent a contribution with the checksum ");
  expect_reported(1, false, "rank 1 sent a contribution with the checksum ");
}

TEST(ShmInPlace, ReportsSumsThatChange) {
  expect_reported(kStepsInPlace, true, "rank 0 sent a sum with the checksum ");
}

/// Returns the memory that a window takes, of any of the ranks, which have equal ones.
std::size_t window_blocks() {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code ignored;
    struct stat status {};
    if (std::filesystem::read_symlink(entry, ignored).string().find("memfd:convoy-window ") !=
            std::string::npos &&
        stat(entry.path().c_str(), &status) == 0)
      return static_cast<std::size_t>(status.st_blocks) * 512;
  }
  return 0;
}

/// Freed blocks are freed in all processes, and their addresses are used again.
TEST(ShmInPlace, FreesMemory) {
  run_forked_ranks(3, [](const ForkedRank& rank) {
    const std::size_t files = ProcessSize::of().descriptors;
    {
      const auto comm = make(rank);
      std::optional<SharedData> kept;
      for (int round = 0; round < 50; ++round) {
        SharedData data(*comm, 100'000 + 1000 * round, DType::f32, 0);
        for (std::int64_t i = 0; i < data.view.numel(); ++i) ASSERT_EQ(data.view.as<float>()[i], 0);
        std::fill_n(data.view.as<float>(), data.view.numel(), 1.0F);
        comm->all_reduce(data.view);
        comm->synchronize();
        ASSERT_EQ(data.view.as<float>()[data.view.numel() - 1], 3);
        if (round == 20) kept.emplace(std::move(data));
      }
      EXPECT_EQ(mappings_of("memfd:convoy-window "), 3U);
      comm->barrier();
      EXPECT_EQ(window_blocks(), (4 * 120'000 + 4095) / 4096 * 4096U);
      comm->barrier();
      kept.reset();
      comm->barrier();
      EXPECT_EQ(window_blocks(), 0U);
      comm->finish();
    }
    EXPECT_EQ(mappings_of("memfd:convoy"), 0U);
    EXPECT_EQ(ProcessSize::of().descriptors, files);
  });
}

TEST(ShmInPlace, MemoryOutlivesItsCommunicator) {
  run_forked_ranks(2, [](const ForkedRank& rank) {
    auto comm = make(rank);
    std::optional<SharedData> data(std::in_place, *comm, 5000, DType::f32, 0);
    std::fill_n(data->view.as<float>(), 5000, 2.0F);
    comm->all_reduce(data->view);
    comm->finish();
    comm.reset();
    for (int i = 0; i < 5000; ++i) ASSERT_EQ(data->view.as<float>()[i], 4);
    std::fill_n(data->view.as<float>(), 5000, 5.0F);
    EXPECT_EQ(mappings_of("memfd:convoy"), 1U);
    data.reset();
    EXPECT_EQ(mappings_of("memfd:convoy"), 0U);
  });
}

TEST(ShmInPlace, AllRanksReportFailedAllocation) {
  const auto error_of = [](const ForkedRank& rank, std::size_t bytes) {
    const auto comm = make(rank);
    const std::string local =
        rank.rank == 1 ? message_of<DeviceError>([&] { comm->allocate(bytes); }) : std::string();
    EXPECT_THAT(message_of<PeerError>([&] { comm->barrier(); }), HasSubstr("rank 1 failed: shared memory: "));
    return local;
  };
  run_forked_ranks(2, [&](const ForkedRank& rank) {
    const std::string too_large = error_of(rank, std::size_t{1} << 50);
    if (rank.rank == 1) {
      EXPECT_THAT(too_large, HasSubstr("expected at most half of this machine's memory"));
    }
    // The system refuses larger files than this.
    const rlimit limit{1 << 20, 1 << 20};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    signal(SIGXFSZ, SIG_IGN);
    const std::string refused = error_of(rank, 8 << 20);
    if (rank.rank == 1) {
      EXPECT_THAT(refused, StartsWith("shared memory: cannot allocate 8388608 bytes: "));
    }
  });
}

TEST(ShmInPlace, AllRanksReportMemoryThatCannotBeOpened) {
  run_forked_ranks(2, [](const ForkedRank& rank) {
    const auto comm = make(rank);
    const SharedData data(*comm, 100, DType::f32, 0);
    if (rank.rank == 1) {
      const rlimit limit{0, 1024};
      ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
    }
    comm->all_reduce(data.view);
    const std::string error = message_of<PeerError>([&] {
      comm->synchronize();
      comm->barrier();
    });
    EXPECT_THAT(error, HasSubstr("Too many open files"));
  });
}

}  // namespace
}  // namespace convoy::testing
