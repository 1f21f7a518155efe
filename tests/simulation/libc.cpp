// Takes the place of functions of the C library in this program and in all shared libraries that it loads: the dynamic
// linker finds the definitions of a program before those of a library. Each function below has the name of a function of
// the C library as its symbol. Called by a coroutine of the simulation, it acts on the simulated machines and spends
// virtual time. Called by any other code, or for a descriptor that is no simulated one, it calls the C library.
#include <arpa/inet.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <linux/futex.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <deque>
#include <optional>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tests/simulation/machine.h"

namespace simulation {
namespace {

constexpr Time kBootTime = 1000 * kSecond;  // of the steady clock at the begin: 0 often means "never"
constexpr Time kUnixTime = 1'700'000'000 * kSecond;

// What calls cost, before the slowness of the host.
constexpr Time kCall = kMicrosecond, kConnectCall = 5 * kMicrosecond, kFileCall = 10 * kMicrosecond;

Coroutine* self() { return scheduler() == nullptr ? nullptr : scheduler()->current(); }

/// Spends the time of a system call, in which other coroutines run.
void charge(Time base) {
  const Coroutine* const caller = self();
  if (caller == nullptr) return;
  const double jitter = 0.5 + 1e-3 * static_cast<double>(scheduler()->random(1000));
  scheduler()->spend(static_cast<Time>(static_cast<double>(base) * jitter * caller->process->host->slowness));
}

int fail_with(int error) {
  errno = error;
  return -1;
}

/// Returns the next definition of a symbol: that of the C library.
template <class F>
F* next(const char* name) {
  return reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
}

/// Returns the file of a descriptor as this type, or null.
template <class F>
F* file_of(int descriptor) {
  return network() == nullptr ? nullptr : dynamic_cast<F*>(network()->file(descriptor));
}

bool is_simulated(int descriptor) { return network() != nullptr && network()->has(descriptor); }

// Waiting for an address: of a mutex, of a condition variable, or of a futex word. All processes map shared memory at the
// same address.
std::unordered_map<const void*, std::deque<Coroutine*>> g_queues;

bool wait_at(const void* address, Time until) {
  Coroutine* const caller = self();
  g_queues[address].push_back(caller);
  const bool was_woken = scheduler()->block(until);
  const auto queue = g_queues.find(address);
  if (queue != g_queues.end()) {
    std::erase(queue->second, caller);
    if (queue->second.empty()) g_queues.erase(queue);
  }
  return was_woken;
}

int wake_at(const void* address, int limit) {
  const auto queue = g_queues.find(address);
  int woken = 0;
  while (queue != g_queues.end() && !queue->second.empty() && woken < limit) {
    Coroutine* const waiter = queue->second.front();
    queue->second.pop_front();
    if (waiter->process->has_ended) continue;
    scheduler()->wake(waiter);
    ++woken;
  }
  return woken;
}

Time time_of(const timespec& time) { return time.tv_sec * kSecond + time.tv_nsec; }

/// Returns the virtual time of a time of a clock.
Time virtual_time(clockid_t clock, const timespec& time) {
  return time_of(time) - (clock == CLOCK_REALTIME ? kUnixTime : kBootTime);
}

/// Blocks until the file is ready for one of the events.
void wait_for(File* file, short events) {
  while ((file->ready() & events) == 0) {
    file->waiters.push_back(self());
    scheduler()->block();
    std::erase(file->waiters, self());
  }
}

/// Returns a stream that reads this text. The C++ library reads its descriptor itself, so it must be a real file.
std::FILE* open_text(const std::string& text) {
  static std::unordered_map<std::string, std::string> paths;  // by content
  std::string& path = paths[text];
  if (path.empty()) {
    const auto file = static_cast<int>(next<long(long, ...)>("syscall")(SYS_memfd_create, "simulation", 0U));
    if (next<ssize_t(int, const void*, std::size_t)>("write")(file, text.data(), text.size()) < 0)
      std::abort();
    path = "/proc/self/fd/" + std::to_string(file);
  }
  static auto* const real = next<std::FILE*(const char*, const char*)>("fopen64");
  return real(path.c_str(), "r");
}

std::string status_text(const Process& process) {
  const char state = process.has_ended ? 'Z' : process.is_stopped ? 'T' : 'S';
  constexpr int kFieldsBeforeExitCode = 48;
  std::string text = std::to_string(process.pid) + " (rank) " + state;
  for (int i = 0; i < kFieldsBeforeExitCode; ++i) text += " 0";
  return text + " " + std::to_string(process.status);
}

/// Opens a file of /proc; nullopt if the simulation has no such file.
std::optional<std::FILE*> open_proc(const std::string& path) {
  Process* const process = self()->process;
  int pid = 0, end = 0;
  if (std::sscanf(path.c_str(), "/proc/%d/stat%n", &pid, &end) == 1 && end > 0) {
    const Process* const other = network()->find_process(pid);
    const bool exists =
        other != nullptr && other->host == process->host && scheduler()->now() < other->reaped_at;
    if (!exists) {
      errno = ENOENT;
      return nullptr;
    }
    return open_text(status_text(*other));
  }
  if (path == "/proc/sys/kernel/random/boot_id") return open_text(process->host->name + "-boot");
  if (path == "/proc/self/io") return open_text("rchar: " + std::to_string(process->io_bytes));
  if (path == "/proc/thread-self/io") return open_text("rchar: 0");
  return std::nullopt;
}

void set_address(const Socket& socket, std::uint32_t address, int port, sockaddr* result, socklen_t* bytes) {
  sockaddr_storage whole{};
  socklen_t size = sizeof(sockaddr_in);
  if (socket.is_v6) {
    auto& v6 = reinterpret_cast<sockaddr_in6&>(whole);
    size = sizeof v6;
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(static_cast<std::uint16_t>(port));
    v6.sin6_addr.s6_addr[10] = v6.sin6_addr.s6_addr[11] = 0xff;
    const std::uint32_t in_order = htonl(address);
    std::memcpy(v6.sin6_addr.s6_addr + 12, &in_order, sizeof in_order);
  } else {
    auto& v4 = reinterpret_cast<sockaddr_in&>(whole);
    v4.sin_family = AF_INET;
    v4.sin_port = htons(static_cast<std::uint16_t>(port));
    v4.sin_addr.s_addr = htonl(address);
  }
  std::memcpy(result, &whole, std::min(*bytes, size));
  *bytes = size;
}

/// Returns the address and the port; the address is 0 for any.
std::pair<std::uint32_t, int> address_in(const sockaddr* address) {
  if (address->sa_family == AF_INET6) {
    const auto& v6 = *reinterpret_cast<const sockaddr_in6*>(address);
    std::uint32_t last = 0;
    std::memcpy(&last, v6.sin6_addr.s6_addr + 12, sizeof last);
    return {IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr) ? ntohl(last) : 0, ntohs(v6.sin6_port)};
  }
  const auto& v4 = *reinterpret_cast<const sockaddr_in*>(address);
  return {ntohl(v4.sin_addr.s_addr), ntohs(v4.sin_port)};
}

int free_port(Host& host) {
  while (host.listeners.contains(host.next_port)) ++host.next_port;
  return host.next_port++;
}

ssize_t send_bytes(Socket* socket, const iovec* parts, std::size_t count) {
  charge(kCall);
  if (socket->state != Socket::State::connected) return fail_with(ENOTCONN);
  if (socket->in->was_reset) return fail_with(ECONNRESET);
  if (socket->out->was_closed) return fail_with(EPIPE);
  if (socket->is_blocking) wait_for(socket, POLLOUT);
  const std::size_t used = socket->out->bytes_in_flight + socket->out->unread();
  if (used >= Network::kBufferBytes) return fail_with(EAGAIN);
  const std::size_t room = Network::kBufferBytes - used;
  std::string bytes;
  for (std::size_t i = 0; i < count; ++i)
    bytes.append(static_cast<const char*>(parts[i].iov_base),
                 std::min(parts[i].iov_len, room - bytes.size()));
  const auto sent = static_cast<ssize_t>(bytes.size());
  if (sent > 0) network()->send(socket->out, std::move(bytes), Pipe::Segment::Kind::data);
  return sent;
}

ssize_t receive_bytes(Socket* socket, void* buffer, std::size_t size) {
  charge(kCall);
  if (socket->state != Socket::State::connected) return fail_with(ENOTCONN);
  if (socket->is_blocking) wait_for(socket, POLLIN);
  Pipe& pipe = *socket->in;
  if (pipe.unread() == 0) {
    if (pipe.was_reset) return fail_with(ECONNRESET);
    return pipe.has_ended ? 0 : fail_with(EAGAIN);
  }
  const bool was_full = pipe.unread() + pipe.bytes_in_flight >= Network::kBufferBytes;
  const std::size_t count = std::min(size, pipe.unread());
  std::memcpy(buffer, pipe.received.data() + pipe.read, count);
  pipe.read += count;
  if (pipe.unread() == 0 || pipe.read > Network::kBufferBytes) {
    pipe.received.erase(0, pipe.read);
    pipe.read = 0;
  }
  if (was_full && pipe.writer != nullptr)
    scheduler()->at(scheduler()->now() + network()->link(pipe.from, pipe.to).latency, [kept = socket->in] {
      if (kept->writer != nullptr) kept->writer->notify();
    });
  return static_cast<ssize_t>(count);
}

/// The result of getifaddrs().
struct Interfaces {
  ifaddrs loopback{}, network{};
  sockaddr_in addresses[4]{};
};

long futex(std::uint32_t* word, int operation, std::uint32_t value, const timespec* time) {
  charge(kCall / 5);
  const int kind = operation & FUTEX_CMD_MASK;
  if (kind == FUTEX_WAKE || kind == FUTEX_WAKE_BITSET) return wake_at(word, static_cast<int>(value));
  if (__atomic_load_n(word, __ATOMIC_SEQ_CST) != value) return fail_with(EAGAIN);
  Time until = kNever;
  if (time != nullptr && kind == FUTEX_WAIT) until = scheduler()->now() + time_of(*time);
  if (time != nullptr && kind == FUTEX_WAIT_BITSET)
    until = virtual_time((operation & FUTEX_CLOCK_REALTIME) != 0 ? CLOCK_REALTIME : CLOCK_MONOTONIC, *time);
  return wait_at(word, until) ? 0 : fail_with(ETIMEDOUT);
}

bool is_recursive(const pthread_mutex_t* mutex) {
  return (mutex->__data.__kind & 3) == PTHREAD_MUTEX_RECURSIVE;
}

void lock(pthread_mutex_t* mutex) {
  auto& data = mutex->__data;
  if (is_recursive(mutex) && data.__lock != 0 && data.__owner == self()->id) {
    ++data.__count;
    return;
  }
  while (data.__lock != 0) wait_at(mutex, kNever);
  data.__lock = 1;
  data.__owner = self()->id;
}

void unlock(pthread_mutex_t* mutex) {
  auto& data = mutex->__data;
  if (is_recursive(mutex) && data.__count > 0) {
    --data.__count;
    return;
  }
  data.__lock = 0;
  data.__owner = 0;
  wake_at(mutex, 1);
}

int wait_for_condition(pthread_cond_t* condition, pthread_mutex_t* mutex, Time until) {
  unlock(mutex);
  const bool was_woken = wait_at(condition, until);
  lock(mutex);
  return was_woken ? 0 : ETIMEDOUT;
}

}  // namespace
}  // namespace simulation

using namespace simulation;

// Declares and defines a function whose symbol is `name`. `real` is what the C library has.
#define REPLACE(result, name, parameters)                  \
  extern "C" result replaced_##name parameters asm(#name); \
  result replaced_##name parameters
#define REAL(name, ...)                                                                     \
  static auto* const real = next<std::remove_pointer_t<decltype(&replaced_##name)>>(#name); \
  return real(__VA_ARGS__)

// ---- Time

REPLACE(int, clock_gettime, (clockid_t clock, timespec* time)) {
  if (scheduler() == nullptr) {
    REAL(clock_gettime, clock, time);
  }
  const Time now = scheduler()->now() + (clock == CLOCK_REALTIME ? kUnixTime : kBootTime);
  *time = {.tv_sec = now / kSecond, .tv_nsec = now % kSecond};
  return 0;
}

REPLACE(int, nanosleep, (const timespec* time, timespec* left)) {
  if (self() == nullptr) {
    REAL(nanosleep, time, left);
  }
  charge(kCall);
  scheduler()->spend(time_of(*time));
  return 0;
}

REPLACE(int, clock_nanosleep, (clockid_t clock, int flags, const timespec* time, timespec* left)) {
  if (self() == nullptr) {
    REAL(clock_nanosleep, clock, flags, time, left);
  }
  charge(kCall);
  const Time sleep =
      (flags & TIMER_ABSTIME) != 0 ? virtual_time(clock, *time) - scheduler()->now() : time_of(*time);
  scheduler()->spend(std::max<Time>(sleep, 0));
  return 0;
}

REPLACE(int, sched_yield, ()) {
  if (self() == nullptr) {
    REAL(sched_yield);
  }
  charge(kCall);
  return 0;
}

// ---- Threads

REPLACE(int, pthread_create,
        (pthread_t * thread, const pthread_attr_t* attributes, void* (*body)(void*), void* argument)) {
  if (self() == nullptr) {
    REAL(pthread_create, thread, attributes, body, argument);
  }
  charge(kFileCall);
  *thread = reinterpret_cast<pthread_t>(scheduler()->start(self()->process, [=] { body(argument); }));
  return 0;
}

REPLACE(int, pthread_join, (pthread_t thread, void** result)) {
  if (self() == nullptr) {
    REAL(pthread_join, thread, result);
  }
  auto* const other = reinterpret_cast<Coroutine*>(thread);
  other->joiner = self();
  while (!other->has_finished) scheduler()->block();
  return 0;
}

REPLACE(int, pthread_detach, (pthread_t thread)) {
  if (self() == nullptr) {
    REAL(pthread_detach, thread);
  }
  return 0;
}

REPLACE(pthread_t, pthread_self, ()) {
  if (self() == nullptr) {
    REAL(pthread_self);
  }
  return reinterpret_cast<pthread_t>(self());
}

REPLACE(int, pthread_mutex_lock, (pthread_mutex_t * mutex)) {
  if (self() == nullptr) {
    REAL(pthread_mutex_lock, mutex);
  }
  lock(mutex);
  return 0;
}

REPLACE(int, pthread_mutex_trylock, (pthread_mutex_t * mutex)) {
  if (self() == nullptr) {
    REAL(pthread_mutex_trylock, mutex);
  }
  if (mutex->__data.__lock != 0) return EBUSY;
  lock(mutex);
  return 0;
}

REPLACE(int, pthread_mutex_unlock, (pthread_mutex_t * mutex)) {
  if (self() == nullptr) {
    REAL(pthread_mutex_unlock, mutex);
  }
  unlock(mutex);
  return 0;
}

REPLACE(int, pthread_cond_wait, (pthread_cond_t * condition, pthread_mutex_t* mutex)) {
  if (self() == nullptr) {
    REAL(pthread_cond_wait, condition, mutex);
  }
  return wait_for_condition(condition, mutex, kNever);
}

REPLACE(int, pthread_cond_timedwait,
        (pthread_cond_t * condition, pthread_mutex_t* mutex, const timespec* time)) {
  if (self() == nullptr) {
    REAL(pthread_cond_timedwait, condition, mutex, time);
  }
  return wait_for_condition(condition, mutex, virtual_time(CLOCK_REALTIME, *time));
}

REPLACE(int, pthread_cond_clockwait,
        (pthread_cond_t * condition, pthread_mutex_t* mutex, clockid_t clock, const timespec* time)) {
  if (self() == nullptr) {
    REAL(pthread_cond_clockwait, condition, mutex, clock, time);
  }
  return wait_for_condition(condition, mutex, virtual_time(clock, *time));
}

REPLACE(int, pthread_cond_signal, (pthread_cond_t * condition)) {
  if (self() == nullptr) {
    REAL(pthread_cond_signal, condition);
  }
  wake_at(condition, 1);
  return 0;
}

REPLACE(int, pthread_cond_broadcast, (pthread_cond_t * condition)) {
  if (self() == nullptr) {
    REAL(pthread_cond_broadcast, condition);
  }
  wake_at(condition, INT32_MAX);
  return 0;
}

extern "C" long replaced_syscall(long number, ...) asm("syscall");
long replaced_syscall(long number, ...) {
  std::va_list list;
  va_start(list, number);
  long arguments[6];
  for (long& argument : arguments) argument = va_arg(list, long);
  va_end(list);
  if (self() != nullptr && number == SYS_futex)
    return futex(reinterpret_cast<std::uint32_t*>(arguments[0]), static_cast<int>(arguments[1]),
                 static_cast<std::uint32_t>(arguments[2]), reinterpret_cast<const timespec*>(arguments[3]));
  static auto* const real = next<long(long, ...)>("syscall");
  return real(number, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4], arguments[5]);
}

// ---- Processes

REPLACE(pid_t, getpid, ()) {
  if (self() == nullptr) {
    REAL(getpid);
  }
  return self()->process->pid;
}

extern "C" [[noreturn]] void replaced_exit(int code) asm("_exit");
void replaced_exit(int code) {
  if (self() != nullptr) {
    self()->process->end((code & 0xff) << 8);
    scheduler()->block();  // for ever
  }
  next<void(int)>("_Exit")(code);
  std::abort();  // not reached
}

/// std::random_device::_M_getval(), so that tokens depend on the seed.
extern "C" unsigned replaced_random(void* device) asm("_ZNSt13random_device9_M_getvalEv");
unsigned replaced_random(void* device) {
  if (scheduler() == nullptr) return next<unsigned(void*)>("_ZNSt13random_device9_M_getvalEv")(device);
  return static_cast<unsigned>(scheduler()->random(std::uint64_t{1} << 32));
}

// ---- Hosts

REPLACE(int, gethostname, (char* name, std::size_t size)) {
  if (self() == nullptr) {
    REAL(gethostname, name, size);
  }
  std::snprintf(name, size, "%s", self()->process->host->name.c_str());
  return 0;
}

REPLACE(ssize_t, readlink, (const char* path, char* buffer, std::size_t size)) {
  const std::string text = path;
  if (self() == nullptr || !text.starts_with("/proc/self/ns/")) {
    REAL(readlink, path, buffer, size);
  }
  const std::string target = text.substr(text.rfind('/') + 1) + ":[" + self()->process->host->name + "]";
  return static_cast<ssize_t>(target.copy(buffer, size));
}

REPLACE(int, getifaddrs, (ifaddrs * *list)) {
  if (self() == nullptr) {
    REAL(getifaddrs, list);
  }
  charge(kFileCall);
  auto* const found = new Interfaces;
  const std::uint32_t values[] = {INADDR_LOOPBACK, 0xff000000, self()->process->host->address, 0xffffff00};
  for (int i = 0; i < 4; ++i) {
    found->addresses[i].sin_family = AF_INET;
    found->addresses[i].sin_addr.s_addr = htonl(values[i]);
  }
  const auto address = [&](int index) { return reinterpret_cast<sockaddr*>(&found->addresses[index]); };
  static char loopback[] = "lo", network[] = "eth0";
  found->loopback = {.ifa_next = &found->network,
                     .ifa_name = loopback,
                     .ifa_flags = IFF_UP | IFF_RUNNING | IFF_LOOPBACK,
                     .ifa_addr = address(0),
                     .ifa_netmask = address(1),
                     .ifa_ifu = {},
                     .ifa_data = nullptr};
  found->network = {.ifa_next = nullptr,
                    .ifa_name = network,
                    .ifa_flags = IFF_UP | IFF_RUNNING,
                    .ifa_addr = address(2),
                    .ifa_netmask = address(3),
                    .ifa_ifu = {},
                    .ifa_data = nullptr};
  *list = &found->loopback;
  return 0;
}

REPLACE(void, freeifaddrs, (ifaddrs * list)) {
  if (self() == nullptr) {
    REAL(freeifaddrs, list);
  }
  delete reinterpret_cast<Interfaces*>(list);
}

REPLACE(int, getaddrinfo, (const char* node, const char* service, const addrinfo* hints, addrinfo** result)) {
  static auto* const real = next<std::remove_pointer_t<decltype(&replaced_getaddrinfo)>>("getaddrinfo");
  if (self() != nullptr && (hints->ai_flags & AI_NUMERICHOST) == 0) {
    charge(kMillisecond);  // a name server
    for (const auto& host : network()->hosts())
      if (node != nullptr && host->name == node) {
        in_addr address{.s_addr = htonl(host->address)};
        return real(inet_ntoa(address), service, hints, result);
      }
    return EAI_NONAME;
  }
  return real(node, service, hints, result);
}

// ---- Files

REPLACE(std::FILE*, fopen64, (const char* path, const char* mode)) {
  if (self() != nullptr && std::strncmp(path, "/proc/", 6) == 0) {
    charge(kFileCall);
    if (const auto file = open_proc(path)) return *file;
  }
  REAL(fopen64, path, mode);
}

REPLACE(std::FILE*, fopen, (const char* path, const char* mode)) { return replaced_fopen64(path, mode); }

REPLACE(int, open, (const char* path, int flags, ...)) {
  std::va_list list;
  va_start(list, flags);
  const int mode = (flags & (O_CREAT | __O_TMPFILE)) != 0 ? va_arg(list, int) : 0;
  va_end(list);
  int pid = 0, descriptor = 0;
  if (self() != nullptr && std::strcmp(path, "/dev/null") == 0)
    return network()->open(self()->process, new File);
  if (self() != nullptr && std::sscanf(path, "/proc/%d/fd/%d", &pid, &descriptor) == 2) {
    charge(kFileCall);
    const Process* const owner = network()->find_process(pid);
    auto* const original = file_of<MemoryFile>(descriptor);
    if (owner == nullptr || owner->has_ended || owner->host != self()->process->host || original == nullptr ||
        !owner->descriptors.contains(descriptor))
      return fail_with(ENOENT);
    auto* const opened = new MemoryFile;
    opened->memory = original->memory;
    ++opened->memory->descriptions;
    return network()->open(self()->process, opened);
  }
  REAL(open, path, flags, mode);
}

REPLACE(int, open64, (const char* path, int flags, ...)) {
  std::va_list list;
  va_start(list, flags);
  const int mode = (flags & (O_CREAT | __O_TMPFILE)) != 0 ? va_arg(list, int) : 0;
  va_end(list);
  return replaced_open(path, flags, mode);
}

REPLACE(int, close, (int descriptor)) {
  if (!is_simulated(descriptor)) {
    REAL(close, descriptor);
  }
  Coroutine* const caller = self();
  charge(kCall);
  if (is_simulated(descriptor)) network()->close(caller->process, descriptor);
  return 0;
}

REPLACE(ssize_t, read, (int descriptor, void* buffer, std::size_t size)) {
  if (auto* const socket = file_of<Socket>(descriptor)) return receive_bytes(socket, buffer, size);
  if (auto* const counter = file_of<Counter>(descriptor)) {
    charge(kCall);
    if (counter->value == 0) return fail_with(EAGAIN);
    std::memcpy(buffer, &counter->value, sizeof counter->value);
    counter->value = 0;
    return sizeof counter->value;
  }
  REAL(read, descriptor, buffer, size);
}

REPLACE(ssize_t, write, (int descriptor, const void* buffer, std::size_t size)) {
  const iovec part{const_cast<void*>(buffer), size};
  if (auto* const socket = file_of<Socket>(descriptor)) return send_bytes(socket, &part, 1);
  if (auto* const counter = file_of<Counter>(descriptor)) {
    charge(kCall);
    std::uint64_t more = 0;
    std::memcpy(&more, buffer, sizeof more);
    counter->value += more;
    counter->notify();
    return static_cast<ssize_t>(size);
  }
  REAL(write, descriptor, buffer, size);
}

REPLACE(int, eventfd, (unsigned value, int flags)) {
  if (self() == nullptr) {
    REAL(eventfd, value, flags);
  }
  auto* const counter = new Counter;
  counter->value = value;
  return network()->open(self()->process, counter);
}

// ---- Shared memory

REPLACE(int, memfd_create, (const char* name, unsigned flags)) {
  if (self() == nullptr) {
    REAL(memfd_create, name, flags);
  }
  charge(kFileCall);
  auto* const file = new MemoryFile;
  file->memory = new Memory{.inode = 1 + scheduler()->random(std::uint64_t{1} << 40), .descriptions = 1};
  network()->memories.insert(file->memory);
  return network()->open(self()->process, file);
}

REPLACE(int, posix_fallocate, (int descriptor, off_t offset, off_t bytes)) {
  auto* const file = file_of<MemoryFile>(descriptor);
  if (file == nullptr) {
    REAL(posix_fallocate, descriptor, offset, bytes);
  }
  file->memory->bytes = static_cast<std::size_t>(bytes);
  return 0;
}

REPLACE(int, fstat, (int descriptor, struct stat* status)) {
  const auto* const file = file_of<MemoryFile>(descriptor);
  if (file == nullptr) {
    REAL(fstat, descriptor, status);
  }
  *status = {};
  status->st_ino = file->memory->inode;
  status->st_size = static_cast<off_t>(file->memory->bytes);
  return 0;
}

REPLACE(void*, mmap,
        (void* address, std::size_t bytes, int protection, int flags, int descriptor, off_t offset)) {
  static auto* const real = next<std::remove_pointer_t<decltype(&replaced_mmap)>>("mmap");
  const auto* const file = file_of<MemoryFile>(descriptor);
  if (file == nullptr) return real(address, bytes, protection, flags, descriptor, offset);
  charge(kFileCall);
  Memory& memory = *file->memory;  // one mapping, which all processes share
  if (memory.data == nullptr)
    memory.data = static_cast<char*>(
        real(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  ++memory.mappings;
  self()->process->mappings.insert(&memory);
  return memory.data;
}

REPLACE(int, munmap, (void* address, std::size_t bytes)) {
  if (self() != nullptr)
    for (Memory* const memory : network()->memories)
      if (memory->data == address) {
        --memory->mappings;
        auto& mappings = self()->process->mappings;
        mappings.erase(mappings.find(memory));
        memory->release_if_unused();
        return 0;
      }
  REAL(munmap, address, bytes);
}

REPLACE(int, fcntl, (int descriptor, int command, ...)) {
  std::va_list list;
  va_start(list, command);
  void* const argument = va_arg(list, void*);
  va_end(list);
  if (!is_simulated(descriptor)) {
    REAL(fcntl, descriptor, command, argument);
  }
  charge(kCall);
  auto* const file = file_of<MemoryFile>(descriptor);
  if (file == nullptr || (command != F_OFD_SETLK && command != F_OFD_GETLK)) return 0;
  auto& wanted = *static_cast<struct flock*>(argument);
  auto& locks = file->memory->locks;
  const auto conflict = std::find_if(locks.begin(), locks.end(), [&](const auto& held) {
    return held.first >= wanted.l_start && held.first < wanted.l_start + wanted.l_len && held.second != file;
  });
  if (command == F_OFD_GETLK) {
    wanted.l_type = static_cast<short>(conflict == locks.end() ? F_UNLCK : F_WRLCK);
    return 0;
  }
  if (wanted.l_type != F_UNLCK && conflict != locks.end()) return fail_with(EAGAIN);
  for (std::int64_t byte = wanted.l_start; byte < wanted.l_start + wanted.l_len; ++byte) {
    if (wanted.l_type == F_UNLCK)
      locks.erase(byte);
    else
      locks[byte] = file;
  }
  return 0;
}

// ---- Sockets

REPLACE(int, socket, (int domain, int type, int protocol)) {
  if (self() == nullptr || (domain != AF_INET && domain != AF_INET6)) {
    REAL(socket, domain, type, protocol);
  }
  charge(kCall);
  auto* const socket = new Socket;
  socket->host = self()->process->host;
  socket->is_v6 = domain == AF_INET6;
  return network()->open(self()->process, socket);
}

REPLACE(int, bind, (int descriptor, const sockaddr* address, socklen_t bytes)) {
  auto* const socket = file_of<Socket>(descriptor);
  if (socket == nullptr) {
    REAL(bind, descriptor, address, bytes);
  }
  charge(kCall);
  const auto [wanted, port] = address_in(address);
  if (wanted != 0 && network()->find_host(wanted, socket->host) != socket->host)
    return fail_with(EADDRNOTAVAIL);
  if (port != 0 && socket->host->listeners.contains(port)) return fail_with(EADDRINUSE);
  socket->local_address = wanted;
  socket->local_port = port != 0 ? port : free_port(*socket->host);
  socket->state = Socket::State::bound;
  return 0;
}

REPLACE(int, listen, (int descriptor, int backlog)) {
  auto* const socket = file_of<Socket>(descriptor);
  if (socket == nullptr) {
    REAL(listen, descriptor, backlog);
  }
  if (!socket->host->listeners.emplace(socket->local_port, socket).second) return fail_with(EADDRINUSE);
  socket->state = Socket::State::listening;
  socket->backlog = static_cast<std::size_t>(backlog);
  return 0;
}

REPLACE(int, accept4, (int descriptor, sockaddr* address, socklen_t* bytes, int flags)) {
  auto* const listener = file_of<Socket>(descriptor);
  if (listener == nullptr) {
    REAL(accept4, descriptor, address, bytes, flags);
  }
  charge(kConnectCall);
  if (listener->pending.empty()) return fail_with(EAGAIN);
  Socket* const socket = listener->pending.front();
  listener->pending.pop_front();
  return network()->open(self()->process, socket);
}

REPLACE(int, connect, (int descriptor, const sockaddr* address, socklen_t bytes)) {
  auto* const socket = file_of<Socket>(descriptor);
  if (socket == nullptr) {
    REAL(connect, descriptor, address, bytes);
  }
  charge(kConnectCall);
  const auto [remote, port] = address_in(address);
  const bool is_local = remote >> 24 == 127;
  socket->state = Socket::State::connecting;
  socket->remote_address = remote;
  socket->remote_port = port;
  socket->local_address = is_local ? remote : socket->host->address;
  socket->local_port = free_port(*socket->host);
  network()->connect(socket, remote, port, 0);
  return fail_with(EINPROGRESS);
}

REPLACE(ssize_t, send, (int descriptor, const void* buffer, std::size_t size, int flags)) {
  auto* const socket = file_of<Socket>(descriptor);
  if (socket == nullptr) {
    REAL(send, descriptor, buffer, size, flags);
  }
  const iovec part{const_cast<void*>(buffer), size};
  return send_bytes(socket, &part, 1);
}

REPLACE(ssize_t, sendmsg, (int descriptor, const msghdr* message, int flags)) {
  auto* const socket = file_of<Socket>(descriptor);
  if (socket == nullptr) {
    REAL(sendmsg, descriptor, message, flags);
  }
  return send_bytes(socket, message->msg_iov, message->msg_iovlen);
}

REPLACE(ssize_t, recv, (int descriptor, void* buffer, std::size_t size, int flags)) {
  auto* const socket = file_of<Socket>(descriptor);
  if (socket == nullptr) {
    REAL(recv, descriptor, buffer, size, flags);
  }
  return receive_bytes(socket, buffer, size);
}

REPLACE(int, shutdown, (int descriptor, int how)) {
  auto* const socket = file_of<Socket>(descriptor);
  if (socket == nullptr) {
    REAL(shutdown, descriptor, how);
  }
  charge(kCall);
  if (socket->state != Socket::State::connected) return fail_with(ENOTCONN);
  if (how != SHUT_RD) network()->send(socket->out, "", Pipe::Segment::Kind::end);
  return 0;
}

REPLACE(int, setsockopt, (int descriptor, int level, int name, const void* value, socklen_t bytes)) {
  if (!is_simulated(descriptor)) {
    REAL(setsockopt, descriptor, level, name, value, bytes);
  }
  return 0;
}

REPLACE(int, getsockopt, (int descriptor, int level, int name, void* value, socklen_t* bytes)) {
  auto* const socket = file_of<Socket>(descriptor);
  if (socket == nullptr) {
    REAL(getsockopt, descriptor, level, name, value, bytes);
  }
  const int error = std::exchange(socket->error, 0);
  std::memcpy(value, &error, sizeof error);
  return 0;
}

REPLACE(int, getsockname, (int descriptor, sockaddr* address, socklen_t* bytes)) {
  auto* const socket = file_of<Socket>(descriptor);
  if (socket == nullptr) {
    REAL(getsockname, descriptor, address, bytes);
  }
  set_address(*socket, socket->local_address, socket->local_port, address, bytes);
  return 0;
}

REPLACE(int, getpeername, (int descriptor, sockaddr* address, socklen_t* bytes)) {
  auto* const socket = file_of<Socket>(descriptor);
  if (socket == nullptr) {
    REAL(getpeername, descriptor, address, bytes);
  }
  set_address(*socket, socket->remote_address, socket->remote_port, address, bytes);
  return 0;
}

REPLACE(int, poll, (pollfd * list, nfds_t count, int milliseconds)) {
  if (self() == nullptr) {
    REAL(poll, list, count, milliseconds);
  }
  charge(kCall + static_cast<Time>(count) * 10);
  const Time until = milliseconds < 0 ? kNever : scheduler()->now() + milliseconds * kMillisecond;
  while (true) {
    int ready = 0;
    for (nfds_t i = 0; i < count; ++i) {
      const File* const file = list[i].fd < 0 ? nullptr : network()->file(list[i].fd);
      list[i].revents = 0;
      if (list[i].fd >= 0 && file == nullptr) list[i].revents = POLLNVAL;
      if (file != nullptr)
        list[i].revents = static_cast<short>(file->ready() & (list[i].events | POLLERR | POLLHUP));
      ready += list[i].revents != 0 ? 1 : 0;
    }
    if (ready > 0 || scheduler()->now() >= until) return ready;
    // A file that another thread closes meanwhile remains, as a description that a system call uses.
    std::vector<File*> files;
    for (nfds_t i = 0; i < count; ++i)
      if (list[i].fd >= 0) files.push_back(network()->file(list[i].fd));
    for (File* const file : files) file->waiters.push_back(self());
    scheduler()->block(until);
    for (File* const file : files) std::erase(file->waiters, self());
  }
}
