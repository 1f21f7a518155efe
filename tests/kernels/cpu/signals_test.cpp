// Signals that arrive while a library computes.
#include <pthread.h>
#include <signal.h>
#include <time.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <thread>

#include "convoy/kernels/conv2d.h"
#include "convoy/kernels/matmul.h"
#include "tests/kernels/conv2d_comparison.h"

namespace convoy {
namespace {

using testing::Array;
using testing::ConvCase;

std::uintptr_t g_stack_begin, g_stack_end;
std::atomic<int> g_handled, g_outside;

void note_place(int) {
  const auto address = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
  ++g_handled;
  if (address < g_stack_begin || address >= g_stack_end) ++g_outside;
}

/// Handles a signal with note_place(), and sends it to this thread every 20 us.
class Signals {
 public:
  Signals() {
    pthread_attr_t attributes;
    void* begin = nullptr;
    std::size_t bytes = 0;
    pthread_getattr_np(pthread_self(), &attributes);
    pthread_attr_getstack(&attributes, &begin, &bytes);
    pthread_attr_destroy(&attributes);
    g_stack_begin = reinterpret_cast<std::uintptr_t>(begin);
    g_stack_end = g_stack_begin + bytes;
    g_handled = g_outside = 0;
    struct sigaction action {};
    action.sa_handler = note_place;
    action.sa_flags = SA_RESTART;
    sigaction(kSignal, &action, &previous_);
    sender_ = std::jthread([target = pthread_self()](const std::stop_token& stop) {
      for (const timespec pause{0, 20'000}; !stop.stop_requested(); nanosleep(&pause, nullptr))
        pthread_kill(target, kSignal);
    });
  }
  ~Signals() {
    sender_ = {};
    sigaction(kSignal, &previous_, nullptr);
  }

 private:
  static constexpr int kSignal = SIGUSR1;
  struct sigaction previous_ {};
  std::jthread sender_;
};

/// Repeats `compute` until 300 signals have been handled.
void expect_handled_on_the_stack(const std::function<void()>& compute) {
  const Signals signals;
  while (g_handled < 300 && g_outside == 0) compute();
  EXPECT_EQ(g_outside, 0) << "a handler used memory that is not of the stack as its stack";
}

TEST(Signals, DoNotOverwriteTheHeapDuringGemm) {
  CpuStream stream({.threads = 1});
  for (const bool transpose_b : {false, true}) {
    const auto a = Array<float>::random({64, 1024}, 1, 1);
    const auto b = Array<float>::random(transpose_b ? Shape{120, 1024} : Shape{1024, 120}, 2, 1);
    Array<float> c({64, 120});
    expect_handled_on_the_stack([&] {
      kernels::matmul(stream, a.view(), b.view(), c.grad(GradMode::overwrite), {.transpose_b = transpose_b});
    });
  }
}

TEST(Signals, DoNotOverwriteTheHeapDuringConvolutions) {
  CpuStream stream({.threads = 1});
  // On a processor with AVX2, oneDNN computes one direction of each by GEMM.
  for (const ConvCase& c :
       {ConvCase{2, 48, 48, 20, 280, 3, 3, {2, 1}, 1}, {2, 48, 48, 32, 32, 3, 3, 1, 2, 1, 2}}) {
    const testing::ConvArrays<float> in(c);
    Array<float> y(c.y()), dx(c.x()), dfilter(c.filter());
    expect_handled_on_the_stack([&] {
      kernels::conv2d_forward(stream, in.x.view(), in.filter.view(), ConstView(), y.view(), c.options());
      kernels::conv2d_backward_data(stream, in.dy.view(), in.filter.view(), dx.grad(GradMode::overwrite),
                                    c.options());
      kernels::conv2d_backward_filter(stream, in.dy.view(), in.x.view(), dfilter.grad(GradMode::overwrite),
                                      c.options());
    });
  }
}

}  // namespace
}  // namespace convoy
