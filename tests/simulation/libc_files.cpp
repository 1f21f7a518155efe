// Files: those of /proc, descriptors, and shared memory (libc.h).
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "tests/simulation/libc.h"

namespace simulation {
namespace {

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

}  // namespace
}  // namespace simulation

using namespace simulation;

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

REPLACE(int, dup, (int descriptor)) {
  File* const file = file_of<File>(descriptor);
  if (file == nullptr) {
    REAL(dup, descriptor);
  }
  charge(kCall);
  ++file->references;
  return network()->open(self()->process, file);
}

/// To a standard stream, as between fork() and execve().
REPLACE(int, dup2, (int descriptor, int stream)) {
  File* const file = file_of<File>(descriptor);
  if (file == nullptr || stream < 0 || stream > 2) {
    REAL(dup2, descriptor, stream);
  }
  charge(kCall);
  ++file->references;
  if (File* const before = std::exchange(self()->process->streams[static_cast<std::size_t>(stream)], file))
    Network::release(before);
  return stream;
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
  if (auto* const socket = file_of<Socket>(descriptor)) return send_bytes(socket, &part, 1, 0);
  if (auto* const counter = file_of<Counter>(descriptor)) {
    charge(kCall);
    std::uint64_t more = 0;
    std::memcpy(&more, buffer, sizeof more);
    counter->value += more;
    counter->notify();
    return static_cast<ssize_t>(size);
  }
  if (auto* const text = file_of<TextFile>(descriptor)) {
    text->text.append(static_cast<const char*>(buffer), size);
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

REPLACE(int, ftruncate, (int descriptor, off_t bytes)) {
  auto* const file = file_of<MemoryFile>(descriptor);
  if (file == nullptr) {
    REAL(ftruncate, descriptor, bytes);
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
  if (command == F_DUPFD_CLOEXEC) return replaced_dup(descriptor);
  if (command == F_SETFL)
    file_of<File>(descriptor)->is_blocking = (reinterpret_cast<std::intptr_t>(argument) & O_NONBLOCK) == 0;
  if (command == F_SETFD && argument == nullptr) network()->inherit(self()->process, descriptor);
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
