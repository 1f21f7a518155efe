// Flips bits of collectives between ranks, for tests of checksums.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "convoy/comm/core/message_links.h"
#include "tests/comm/bit_flipper.h"
#include "tests/comm/device_values.h"
#include "tests/testing/support/errors.h"

namespace convoy::testing {

/// One message of a collective that changes on its way.
struct ChangedMessage {
  int from, to;
  int number;  // among the messages of more than 64 bytes between these ranks: those with elements
};

/// Links that do what others do: the base of those that change or count messages.
class ForwardingLinks : public dist::MessageLinks {
 public:
  explicit ForwardingLinks(std::unique_ptr<dist::MessageLinks> links) : links_(std::move(links)) {}

  std::string name() const override { return links_->name(); }
  int rank() const override { return links_->rank(); }
  int size() const override { return links_->size(); }
  void start() override { links_->start(); }
  void send(int to, std::span<const std::byte> bytes) override { links_->send(to, bytes); }
  void receive(int from, std::span<std::byte> bytes) override { links_->receive(from, bytes); }
  void wait(const dist::Deadline& deadline) override { links_->wait(deadline); }
  bool poll_peers() override { return links_->poll_peers(); }
  std::string new_group_name() override { return links_->new_group_name(); }
  std::unique_ptr<dist::MessageLinks> make_group(std::span<const int> members, const std::string& name,
                                                 const dist::Deadline& deadline) override {
    return links_->make_group(members, name, deadline);
  }
  void leave(const dist::Deadline& deadline) override { links_->leave(deadline); }
  void abort(const std::string& reason) noexcept override { links_->abort(reason); }

 private:
  std::unique_ptr<dist::MessageLinks> links_;
};

/// Links that flip one bit of one message.
class FlippingLinks final : public ForwardingLinks {
 public:
  FlippingLinks(std::unique_ptr<dist::MessageLinks> links, ChangedMessage changed)
      : ForwardingLinks(std::move(links)), changed_(changed) {}

  void send(int to, std::span<const std::byte> bytes) override {
    const bool is_counted = rank() == changed_.from && to == changed_.to && bytes.size() > 64;
    if (!is_counted || changed_.number-- != 0) return ForwardingLinks::send(to, bytes);
    copy_.assign(bytes.begin(), bytes.end());
    copy_[copy_.size() / 2] ^= std::byte{4};
    ForwardingLinks::send(to, copy_);
  }

 private:
  ChangedMessage changed_;
  std::vector<std::byte> copy_;
};

/// The value that each element of `rank` has before a collective, and its sum over ranks [0, ranks).
inline float value_of_rank(int rank) { return 1.0F + std::ldexp(1.0F, -rank - 1); }
inline float sum_of_ranks(int ranks) {
  float sum = 0;
  for (int rank = 0; rank < ranks; ++rank) sum += value_of_rank(rank);
  return sum;
}

constexpr int kChangedBucket = 7;

/// Launches a collective of bucket kChangedBucket on `count` elements that equal value_of_rank(), and returns
/// the result.
using Collective = std::function<std::vector<float>(dist::Communicator&, std::int64_t count)>;

inline std::vector<float> all_reduced(dist::Communicator& comm, std::int64_t count) {
  DeviceValues<float> data(comm, std::vector(static_cast<std::size_t>(count), value_of_rank(comm.rank())));
  comm.set_bucket(kChangedBucket);
  comm.all_reduce(data.view());
  return data.read(comm);
}

inline std::vector<float> reduce_scattered(dist::Communicator& comm, std::int64_t count) {
  const auto part = static_cast<std::size_t>(count / comm.size());
  const DeviceValues<float> in(
      comm, std::vector(part * static_cast<std::size_t>(comm.size()), value_of_rank(comm.rank())));
  DeviceValues<float> out(comm, std::vector<float>(part));
  comm.set_bucket(kChangedBucket);
  comm.reduce_scatter(in.view(), out.view());
  return out.read(comm);
}

/// Returns the part of rank 0.
inline std::vector<float> all_gathered(dist::Communicator& comm, std::int64_t count) {
  const auto part = static_cast<std::size_t>(count / comm.size());
  const DeviceValues<float> in(comm, std::vector(part, value_of_rank(comm.rank())));
  DeviceValues<float> out(comm, std::vector<float>(part * static_cast<std::size_t>(comm.size())));
  comm.set_bucket(kChangedBucket);
  comm.all_gather(in.view(), out.view());
  std::vector<float> all = out.read(comm);
  all.resize(part);
  return all;
}

inline std::vector<float> broadcasted(dist::Communicator& comm, std::int64_t count) {
  DeviceValues<float> data(comm, std::vector(static_cast<std::size_t>(count), value_of_rank(comm.rank())));
  comm.set_bucket(kChangedBucket);
  comm.broadcast(data.view(), 0);
  return data.read(comm);
}

/// A change that a collective must report.
struct Corruption {
  std::string name;
  Collective collective;
  float result;       // of each element, without the change
  std::string what;   // that changes: "rank 1 sent a contribution"
  float changed = 0;  // the value of the elements of which one changes
};

/// Repeats a collective until it fails, for one minute at most. Expects that no result is wrong, and that the
/// error says what has changed. With `at_once`, expects an error of the first collective.
inline void expect_reported(dist::Communicator& comm, const Corruption& corruption, std::int64_t count,
                            bool at_once = false) {
  const dist::Deadline limit(60);
  std::string error;
  for (int round = 0; error.empty() && !limit.passed() && !::testing::Test::HasFailure(); ++round) {
    EXPECT_FALSE(at_once && round > 0) << "not reported by the first collective";
    error = message_of<PeerError>([&] {
      for (const float value : corruption.collective(comm, count)) ASSERT_EQ(value, corruption.result);
      throw PeerError("");
    });
  }
  EXPECT_THAT(error, ::testing::HasSubstr(corruption.what + " with the checksum "));
  EXPECT_THAT(error, ::testing::HasSubstr(", bucket " + std::to_string(kChangedBucket)));
  EXPECT_THAT(error, ::testing::HasSubstr("memory, the network or a processor has changed the bytes"));
}

/// While it exists, flips bits of words that equal `value` in the largest segment that this process shares.
class SegmentDamage {
 public:
  explicit SegmentDamage(float value)
      : thread_([value](const std::stop_token& stop) {
          BitFlipper flipper(getpid());
          while (!stop.stop_requested()) flipper.flip_one_of(std::bit_cast<std::uint32_t>(value));
        }) {}

 private:
  std::jthread thread_;
};

}  // namespace convoy::testing
