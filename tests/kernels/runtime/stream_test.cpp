#include "convoy/kernels/runtime/stream.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <mutex>
#include <numeric>
#include <span>
#include <stdexcept>
#include <thread>
#include <vector>

#include "convoy/kernels/runtime/device_context.h"
#include "convoy/kernels/runtime/event.h"
#include "convoy/kernels/runtime/memory/memory.h"
#include "convoy/kernels/runtime/upload.h"
#include "tests/kernels/array.h"

namespace convoy {
namespace {

constexpr CpuStreamOptions kOwnThread{.threads = 1, .own_thread = true};

TEST(CpuStream, RunsInlineWithoutAThread) {
  CpuStream stream({.threads = 2});
  EXPECT_EQ(stream.threads(), 2);
  std::thread::id ran_on;
  stream.submit([&] { ran_on = std::this_thread::get_id(); });
  EXPECT_EQ(ran_on, std::this_thread::get_id());
  EXPECT_THROW(stream.submit([] { throw std::runtime_error("at once"); }), std::runtime_error);
  EXPECT_NO_THROW(stream.synchronize());
}

TEST(CpuStream, UsesTheCoresOfThisProcessByDefault) {
  EXPECT_GE(available_cores(), 1);
  EXPECT_EQ(CpuStream().threads(), available_cores());
}

TEST(CpuStream, RunsInOrderOnItsOwnThread) {
  CpuStream stream(kOwnThread);
  std::vector<int> order;
  std::thread::id ran_on;
  for (int i = 0; i < 100; ++i)
    stream.submit([&, i] {
      order.push_back(i);
      ran_on = std::this_thread::get_id();
    });
  stream.synchronize();
  std::vector<int> expected(100);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(order, expected);
  EXPECT_NE(ran_on, std::this_thread::get_id());
}

TEST(CpuStream, SynchronizeRethrowsTheFirstErrorOnce) {
  CpuStream stream(kOwnThread);
  std::atomic<int> done = 0;
  stream.submit([] { throw std::runtime_error("first"); });
  stream.submit([] { throw std::runtime_error("second"); });
  stream.submit([&] { ++done; });
  try {
    stream.synchronize();
    FAIL() << "nothing was thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "first");
  }
  EXPECT_EQ(done, 1);
  EXPECT_NO_THROW(stream.synchronize());
}

TEST(CpuStream, FinishesItsQueueWhenDestroyed) {
  std::atomic<int> done = 0;
  {
    CpuStream stream(kOwnThread);
    for (int i = 0; i < 50; ++i)
      stream.submit([&] {
        std::this_thread::sleep_for(std::chrono::microseconds(100));
        ++done;
      });
  }
  EXPECT_EQ(done, 50);
}

TEST(CpuEvent, StartsReached) {
  const CpuEvent event;
  EXPECT_TRUE(event.reached());
  event.wait();
}

TEST(CpuEvent, IsReachedWhenTheStreamReachesIt) {
  CpuStream stream(kOwnThread);
  std::promise<void> gate;
  stream.submit([opened = gate.get_future().share()] { opened.wait(); });
  CpuEvent event;
  stream.record(event);
  EXPECT_FALSE(event.reached());
  gate.set_value();
  event.wait();
  EXPECT_TRUE(event.reached());
}

TEST(CpuEvent, OrdersTwoStreams) {
  CpuStream producer(kOwnThread), consumer(kOwnThread);
  for (int i = 0; i < 50; ++i) {
    int value = 0, seen = 0;
    CpuEvent written, read;
    producer.submit([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
      value = i + 1;
    });
    producer.record(written);
    consumer.wait(written);
    consumer.submit([&] { seen = value; });
    consumer.record(read);
    CpuStream compute({.threads = 1});
    compute.wait(read);  // inline: blocks here
    ASSERT_EQ(seen, i + 1);
  }
}

TEST(CpuEvent, MayBeRecordedAgainAndOutliveItsHandle) {
  CpuStream stream(kOwnThread);
  std::promise<void> gate;
  {
    CpuEvent event;
    stream.record(event);
    event.wait();
    stream.submit([opened = gate.get_future().share()] { opened.wait(); });
    stream.record(event);
    EXPECT_FALSE(event.reached());
  }
  gate.set_value();
  EXPECT_NO_THROW(stream.synchronize());
}

struct Counter {
  explicit Counter(CpuStream& stream) : threads(stream.threads()) {}
  int threads;
  int uses = 0;
};

TEST(CpuStream, KeepsOneLocalStatePerType) {
  CpuStream stream({.threads = 3}), other({.threads = 1});
  EXPECT_EQ(stream.local<Counter>().threads, 3);
  ++stream.local<Counter>().uses;
  ++stream.local<Counter>().uses;
  EXPECT_EQ(stream.local<Counter>().uses, 2);
  EXPECT_EQ(other.local<Counter>().uses, 0);
}

TEST(Device, HandlesShareOneStreamAndOneMemory) {
  const DeviceContext device =
      DeviceContext::create_cpu({.threads = 2, .memory_limit = std::size_t{1} << 20});
  const DeviceContext copy = device;
  EXPECT_EQ(&device.memory(), &copy.memory());
  EXPECT_EQ(device.name(), "cpu");
  EXPECT_EQ(device.kind(), DeviceKind::cpu);
  on(device.stream(), [](auto& stream) {
    if constexpr (requires { stream.threads(); }) {
      EXPECT_EQ(stream.threads(), 2);
    }
  });
  EXPECT_THROW(device.memory().allocate(std::size_t{2} << 20), DeviceError);
}

TEST(Device, StreamUsesTheMemoryOfTheDevice) {
  const DeviceContext device = Device::cpu();
  CpuStream& stream = std::get<std::reference_wrapper<CpuStream>>(device.stream());
  EXPECT_EQ(&stream.memory(), &device.memory());
  CpuStream alone({.threads = 1});
  EXPECT_EQ(&alone.memory(), &alone.memory());
  EXPECT_NE(&alone.memory(), &device.memory());
}

TEST(Device, ParsesDeviceNames) {
  EXPECT_EQ(Device::parse("cpu"), Device::cpu());
  EXPECT_EQ(Device::parse("cuda"), Device::cuda(0));
  EXPECT_EQ(Device::parse("cuda:12"), Device::cuda(12));
  for (const char* text : {"", "gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:123456", "cpu:0"})
    EXPECT_THROW(Device::parse(text), UsageError) << text;
}

TEST(Device, IsAValueWithOneEquality) {
  EXPECT_EQ(Device::cpu(), Device());
  EXPECT_NE(Device::cuda(0), Device::cuda(1));
  EXPECT_NE(Device::cpu(), Device::meta());
  EXPECT_EQ(Device::cuda(3).name(), "cuda:3");
}

TEST(DeviceContext, DefaultIsCreatedOnceInEachThread) {
  const DeviceContext first = Device::cpu(), second = Device::cpu();
  EXPECT_EQ(first, second);
  std::thread([&] {
    const DeviceContext other = Device::cpu();
    EXPECT_NE(other, first) << "two threads share a stream";
    EXPECT_EQ(&other.memory(), &first.memory());
  }).join();
}

TEST(DeviceContext, FirstCreatedIsTheDefaultWhileItExists) {
  std::thread([] {  // a thread without a default
    {
      const DeviceContext created = DeviceContext::create_cpu({.threads = 1});
      const DeviceContext later = DeviceContext::create_cpu({.threads = 1});
      EXPECT_EQ(DeviceContext(Device::cpu()), created);
      EXPECT_NE(created, later);
    }
    const CachingAllocator* const memory = &DeviceContext(Device::cpu()).memory();
    EXPECT_EQ(memory, &DeviceContext(Device::cpu()).memory());
  })
      .join();
}

TEST(DeviceContext, MetaHasNoDataAndRunsNoKernel) {
  const DeviceContext meta = Device::meta();
  bool called = false;
  on(meta.stream(), [&](auto&) { called = true; });
  EXPECT_FALSE(called);
  const std::vector<float> values(3);
  EXPECT_THROW(copy_bytes(meta, {nullptr, {3}, DType::f32}, Device::cpu(),
                          {const_cast<float*>(values.data()), {3}, DType::f32}),
               UsageError);
}

TEST(Device, CopiesBytes) {
  const DeviceContext device = DeviceContext::create_cpu({.threads = 1});
  const std::vector<float> from = {1, 2, 3};
  std::vector<float> to(3);
  copy_bytes(device, {from.data(), {3}, DType::f32}, device, {to.data(), {3}, DType::f32});
  EXPECT_EQ(to, from);
  copy_bytes(device, {nullptr, {0}, DType::f32}, device, {nullptr, {0}, DType::f32});
}

TEST(Event, IsReachedBeforeItIsRecorded) {
  CpuStream stream;
  const Event event{std::ref(stream)};
  EXPECT_TRUE(event.reached());
  event.wait();
}

TEST(Event, BlocksAnotherStreamUntilReached) {
  CpuStream first({.own_thread = true}), second({.own_thread = true});
  Event event{std::ref(first)};
  std::mutex gate;
  std::unique_lock closed(gate);
  std::atomic<int> order = 0;
  int of_first = -1, of_second = -1;
  first.submit([&] {
    const std::lock_guard passed(gate);
    of_first = order++;
  });
  event.record(std::ref(first));
  event.wait(std::ref(second));
  second.submit([&] { of_second = order++; });
  EXPECT_FALSE(event.reached());
  closed.unlock();
  event.wait();
  EXPECT_TRUE(event.reached());
  second.synchronize();
  EXPECT_EQ(of_first, 0);
  EXPECT_EQ(of_second, 1);
}

TEST(Event, BlocksTheCallerOfAnInlineStream) {
  CpuStream inline_stream, queue({.own_thread = true});
  Event event{std::ref(queue)};
  bool done = false;
  queue.submit([&] { done = true; });
  event.record(std::ref(queue));
  event.wait(std::ref(inline_stream));
  EXPECT_TRUE(done);
}

using testing::Array;

TEST(Upload, CopiesImmediatelyOnTheCpu) {
  const DeviceContext cpu = Device::cpu();
  EXPECT_TRUE(cpu.host() == cpu);
  const Array<float> from({37}, 3.0f);
  Array<float> to({37});
  Uploader uploader(cpu);
  const Uploader::Copy copy{.from = from.view(), .to = to.view()};
  const Upload upload = uploader.start(std::span(&copy, 1));
  EXPECT_TRUE(upload.done());
  upload.wait();
  upload.wait_on_compute_stream();
  testing::expect_same_bits(to, from);
}

}  // namespace
}  // namespace convoy
