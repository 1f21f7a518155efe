#include "convoy/comm/cluster/control/thread_stack.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <mutex>

#include "convoy/kernels/base/check.h"

namespace convoy::dist {
namespace {

constexpr int kFrames = 24, kHandlerFrames = 2;  // answer(), and what the kernel has put below it

// A signal handler can access only objects with static storage duration.
void* g_frames[kFrames];
std::atomic<int> g_count;       // of the frames; 0: no answer yet
std::atomic<bool> g_is_wanted;  // an answer

void answer(int) {
  const int saved_errno = errno;  // of the code that the signal interrupts
  if (g_is_wanted.exchange(false)) g_count = backtrace(g_frames, kFrames);
  errno = saved_errno;
}

/// Returns the signal that answer() handles; 0 if the program uses it itself.
int install() {
  const int number = SIGRTMAX - 3;
  struct sigaction action {};
  if (sigaction(number, nullptr, &action) != 0 || action.sa_handler != SIG_DFL) return 0;
  backtrace(g_frames, 1);  // loads a library, for which it needs memory
  action.sa_handler = answer;
  action.sa_flags = SA_RESTART;
  return sigaction(number, &action, nullptr) == 0 ? number : 0;
}

/// Returns "convoy::load_images", or "libcuda.so.1 + 0x1f0" without an exported name.
std::string function_at(void* return_address) {
  char* const call = static_cast<char*>(return_address) - 1;
  Dl_info info{};
  if (dladdr(call, &info) == 0) return "?";
  if (info.dli_sname == nullptr)
    return fmt::format("{} + {:#x}", info.dli_fname, call - static_cast<char*>(info.dli_fbase));
  const std::unique_ptr<char, void (*)(void*)> name(
      abi::__cxa_demangle(info.dli_sname, nullptr, nullptr, nullptr), std::free);
  const std::string text = name ? name.get() : info.dli_sname;
  return text.substr(0, text.find('(', 1 + text.rfind("::")));  // without the parameters
}

std::string first_line(const std::string& path) {
  std::string line;
  std::getline(std::ifstream(path), line);
  return line;
}

}  // namespace

std::string stack_of(pid_t thread) {
  static std::mutex mutex;  // of g_frames
  const std::lock_guard lock(mutex);
  static int number = install();
  g_count = 0;
  g_is_wanted = true;
  if (number != 0 && tgkill(getpid(), thread, number) == 0)
    for (int i = 0; i < 100 && g_count == 0; ++i) usleep(2000);
  // A handler that began and does not end keeps the memory for its frames.
  if (!g_is_wanted.exchange(false) && g_count == 0) number = 0;
  if (g_count == 0) return kernel_state_of(getpid(), thread);
  std::string functions;
  for (int i = kHandlerFrames; i < g_count; ++i)
    functions += (i == kHandlerFrames ? "" : " < ") + function_at(g_frames[i]);
  return functions;
}

std::string kernel_state_of(pid_t process, pid_t thread) {
  const std::string directory = fmt::format("/proc/{}/task/{}/", process, thread);
  const std::string stat = first_line(directory + "stat"), place = first_line(directory + "wchan");
  const std::size_t name_end = stat.rfind(") ");  // the name may contain spaces
  if (name_end == std::string::npos) return "";
  const std::string call = first_line(directory + "syscall");  // "0 0x3 …" of read(), or "running"
  return fmt::format("state {}, system call {}, in {}", stat.substr(name_end + 2, 1),
                     call.substr(0, call.find(' ')), place);
}

}  // namespace convoy::dist
