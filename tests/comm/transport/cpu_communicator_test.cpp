// Tests of CpuCommunicator: stream, sequence numbers and errors, with a scripted transport.
#include "convoy/comm/transport/cpu_communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>
#include <new>
#include <thread>

#include "convoy/kernels/runtime/event.h"
#include "tests/testing/support/errors.h"

namespace convoy::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Log {
  std::mutex mutex;
  std::vector<std::string> calls;
  std::function<void(const dist::Transport::Call&)> on_all_reduce = [](const auto&) {};
  std::function<bool()> on_poll = [] { return false; };

  void write(const std::string& line) {
    const std::lock_guard lock(mutex);
    calls.push_back(line);
  }
};

class ScriptedTransport final : public dist::Transport {
 public:
  explicit ScriptedTransport(Log& log) : log_(log) {}
  ~ScriptedTransport() override { log_.write("destroyed"); }

  std::string name() const override { return "scripted"; }
  int rank() const override { return 1; }
  int size() const override { return 2; }
  void start() override {
    thread_ = std::this_thread::get_id();
    log_.write("start");
  }
  void all_reduce(const Call& call, View) override {
    EXPECT_EQ(std::this_thread::get_id(), thread_);
    EXPECT_DOUBLE_EQ(call.deadline.seconds(), 7);
    log_.write(to_string(call.collective));
    log_.on_all_reduce(call);
  }
  void reduce_scatter(const Call&, ConstView, View) override {}
  void broadcast(const Call&, View) override {}
  void all_gather(const Call&, ConstView, View) override {}
  void barrier(const Call& call) override {
    log_.write(to_string(call.collective) + (call.deadline.seconds() < 7 ? " within 3 s" : ""));
  }
  std::vector<std::string> gather_object(const Call&, const std::string&) override { return {}; }
  std::unique_ptr<dist::Transport> split(const Call&, int) override {
    return std::make_unique<ScriptedTransport>(log_);
  }
  bool poll_peers() override {
    EXPECT_EQ(std::this_thread::get_id(), thread_);
    return log_.on_poll();
  }
  void finish(const Call& call) override { log_.write(to_string(call.collective)); }
  void abort(const std::string& reason) noexcept override { log_.write("abort: " + reason); }

 private:
  Log& log_;
  std::thread::id thread_;
};

class CpuCommunicatorTest : public ::testing::Test {
 protected:
  Log log;
  float value = 0;
  View data{&value, {1}, DType::f32};
  std::unique_ptr<dist::Communicator> comm = std::make_unique<dist::CpuCommunicator>(
      std::make_unique<ScriptedTransport>(log), dist::CommOptions{.timeout_seconds = 7});
};

TEST_F(CpuCommunicatorTest, CallsTheTransportInOrderOnOneThread) {
  comm->all_reduce(data);
  comm->all_reduce(data);
  comm->barrier();
  comm->finish();
  comm.reset();
  EXPECT_THAT(log.calls, ElementsAre("start", "all-reduce 0 (1 f32)", "all-reduce 1 (1 f32)", "barrier 2",
                                     "finish 3", "destroyed"));
}

TEST_F(CpuCommunicatorTest, ReturnsBeforeTheCollectiveEnds) {
  std::mutex gate;
  std::unique_lock closed(gate);
  log.on_all_reduce = [&](const auto&) { const std::lock_guard passed(gate); };
  comm->all_reduce(data);
  Event done(comm->stream());
  done.record(comm->stream());
  EXPECT_FALSE(done.reached());
  closed.unlock();
  done.wait();
  comm->finish();
}

TEST_F(CpuCommunicatorTest, NotifiesOtherRanksAndStopsAfterError) {
  log.on_all_reduce = [](const auto&) { throw PeerError("connection reset"); };
  comm->all_reduce(data);
  comm->all_reduce(data);
  const char* const expected = "all-reduce 0 (1 f32) on rank 1 of 2 (scripted): connection reset";
  EXPECT_EQ(message_of<PeerError>([&] { comm->barrier(); }), expected);
  EXPECT_EQ(message_of<PeerError>([&] { comm->check_errors(); }), expected);
  EXPECT_EQ(message_of<PeerError>([&] { comm->finish(); }), expected);
  EXPECT_THAT(log.calls, ElementsAre("start", "all-reduce 0 (1 f32)", std::string("abort: ") + expected));
}

TEST_F(CpuCommunicatorTest, ProgressPostponesTheDeadlinesOfTheCall) {
  struct Monitor final : dist::CollectiveMonitor {
    int reports = 0;
    void launched(const dist::CollectiveSignature&) noexcept override {}
    void started(const dist::CollectiveSignature&) noexcept override {}
    void progressed() noexcept override { ++reports; }
    void completed(const dist::CollectiveSignature&) noexcept override {}
  };
  const auto monitor = std::make_shared<Monitor>();
  comm->set_monitor(monitor);
  log.on_all_reduce = [](const dist::Transport::Call& call) {
    const dist::Deadline later = call.deadline.plus(2);
    const auto before = call.deadline.at();
    while (dist::Deadline::Clock::now() + std::chrono::seconds(7) <= before) std::this_thread::yield();
    call.deadline.progressed();
    EXPECT_GT(call.deadline.at(), before);
    EXPECT_EQ(later.at() - call.deadline.at(), std::chrono::seconds(2));
    EXPECT_LE(call.deadline.left(), std::chrono::seconds(7));
  };
  comm->all_reduce(data);
  comm->barrier();
  EXPECT_EQ(monitor->reports, 1);
}

TEST_F(CpuCommunicatorTest, KeepsTypeOfLocalError) {
  log.on_all_reduce = [](const auto&) { throw DeviceError("no memory left"); };
  comm->all_reduce(data);
  EXPECT_EQ(message_of<DeviceError>([&] { comm->barrier(); }), "no memory left");
  EXPECT_EQ(log.calls.back(), "abort: rank 1 failed in all-reduce 0 (1 f32): no memory left");
}

TEST_F(CpuCommunicatorTest, NotifiesOtherRanksWhenDestroyedWithoutFinish) {
  comm->all_reduce(data);
  comm.reset();
  EXPECT_THAT(log.calls, ::testing::Contains(HasSubstr("abort: rank 1 exited before finishing")));
  EXPECT_EQ(log.calls.back(), "destroyed");
}

TEST_F(CpuCommunicatorTest, FailsWithAbortReason) {
  comm->check_errors();
  comm->abort("enough");
  comm->all_reduce(data);
  EXPECT_EQ(message_of<PeerError>([&] { comm->finish(); }), "enough");
  EXPECT_THAT(log.calls, ::testing::Not(::testing::Contains(HasSubstr("all-reduce"))));
}

TEST_F(CpuCommunicatorTest, PollsPeersOnTheThreadOfTheTransport) {
  EXPECT_FALSE(comm->poll_peers());
  log.on_poll = [] { return true; };
  EXPECT_TRUE(comm->poll_peers());
  log.on_poll = []() -> bool { throw PeerError("rank 0 has died"); };
  EXPECT_EQ(message_of<PeerError>([&] { comm->poll_peers(); }), "rank 0 has died");
  log.on_poll = []() -> bool { throw PeerError("polled again"); };
  EXPECT_EQ(message_of<PeerError>([&] { comm->poll_peers(); }), "rank 0 has died");
  EXPECT_EQ(log.calls.back(), "abort: rank 0 has died");
}

TEST_F(CpuCommunicatorTest, SetTimeoutChangesLaterCollectivesOnly) {
  std::mutex gate;
  std::unique_lock closed(gate);
  log.on_all_reduce = [&](const auto&) { const std::lock_guard passed(gate); };
  comm->all_reduce(data);
  comm->all_reduce(data);  // ScriptedTransport expects the timeout of its launch
  comm->set_timeout(3);
  closed.unlock();
  comm->barrier();
  EXPECT_EQ(log.calls.back(), "barrier 2 within 3 s");
}

TEST_F(CpuCommunicatorTest, SplitGroupsHaveTheirOwnSequenceNumbers) {
  const auto part = comm->split(0);
  part->barrier();
  EXPECT_EQ(log.calls.back(), "barrier 0");
  part->finish();
  comm->finish();
}

TEST(CollectiveSignatures, AreListedWithTheirRanksIfDifferent) {
  const dist::CollectiveSignature sum{
      .number = 3, .op = dist::CollectiveOp::all_reduce, .dtype = DType::f32, .count = 5};
  dist::CollectiveSignature other = sum;
  other.count = 6;
  const dist::CollectiveSignature third{
      .number = 3, .op = dist::CollectiveOp::broadcast, .dtype = DType::u8, .root = 2, .count = 1};
  EXPECT_NO_THROW(dist::verify_consistency(std::vector(3, sum)));
  const dist::CollectiveSignature all[] = {other, sum, third, sum};
  EXPECT_EQ(
      message_of<PeerError>([&] { dist::verify_consistency(all); }),
      "the ranks launched different collectives: rank 0 in all-reduce 3 (6 f32), ranks 1, 3 in all-reduce "
      "3 (5 f32), rank 2 in broadcast 3 (1 u8 from rank 2)");
}

}  // namespace
}  // namespace convoy::testing
