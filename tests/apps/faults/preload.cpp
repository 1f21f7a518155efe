// A library for LD_PRELOAD whose system calls fail as the files in the directory CONVOY_TEST_FAULTS say:
// "fsync-hangs-N" and "finalize-hangs-N": fsync() or MPI_Finalize() of rank N blocks while the file exists.
// "bind-fails": the next bind() to a port finds it in use. "connect-kills": the next process that connects by TCP
// is killed. "pread-kills", "log-kills": the process that calls pread() next, or that opens a log.jsonl, is killed. These four
// remove their file. "pread-fails": the next pread() of at least 16 bytes fails with the errno that
// the file contains, and removes the file. "pread-fails-always": the same, and the file remains.
#include <dlfcn.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <string>

namespace {

std::string path_of(const std::string& name) {
  const char* const directory = std::getenv("CONVOY_TEST_FAULTS");
  return directory == nullptr ? "" : directory + ("/" + name);
}

/// Returns whether the fault is due, which it is once.
bool take(const std::string& name) { return unlink(path_of(name).c_str()) == 0; }

bool is_tcp(const sockaddr* address) {
  return address->sa_family == AF_INET || address->sa_family == AF_INET6;
}

template <class F>
F next(const char* name) {
  return reinterpret_cast<F>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

int fsync(int file) {
  const char* const rank = std::getenv("RANK");
  while (rank != nullptr && access(path_of("fsync-hangs-" + std::string(rank)).c_str(), F_OK) == 0)
    usleep(20'000);
  return next<int (*)(int)>("fsync")(file);
}

int MPI_Finalize() {
  const char* const rank = std::getenv("OMPI_COMM_WORLD_RANK");
  while (rank != nullptr && access(path_of("finalize-hangs-" + std::string(rank)).c_str(), F_OK) == 0)
    usleep(20'000);
  return next<int (*)()>("MPI_Finalize")();
}

int bind(int socket, const sockaddr* address, socklen_t bytes) {
  // The port has the same place in both families.
  if (is_tcp(address) && reinterpret_cast<const sockaddr_in*>(address)->sin_port != 0 && take("bind-fails")) {
    errno = EADDRINUSE;
    return -1;
  }
  return next<int (*)(int, const sockaddr*, socklen_t)>("bind")(socket, address, bytes);
}

ssize_t pread(int file, void* bytes, size_t count, off_t offset) {
  int error = 0;
  if (count >= 16 && take("pread-kills")) raise(SIGKILL);
  if (count >= 16)
    for (const char* name : {"pread-fails", "pread-fails-always"})
      if (std::ifstream(path_of(name)) >> error && (std::string(name) != "pread-fails" || take(name))) {
        errno = error;
        return -1;
      }
  return next<ssize_t (*)(int, void*, size_t, off_t)>("pread")(file, bytes, count, offset);
}
ssize_t pread64(int file, void* bytes, size_t count, off_t offset) {
  return pread(file, bytes, count, offset);
}

int open(const char* path, int flags, mode_t mode) {
  if (std::string(path).ends_with("/log.jsonl") && take("log-kills")) raise(SIGKILL);
  return next<int (*)(const char*, int, mode_t)>("open")(path, flags, mode);
}
int open64(const char* path, int flags, mode_t mode) { return open(path, flags, mode); }

int connect(int socket, const sockaddr* address, socklen_t bytes) {
  if (is_tcp(address) && take("connect-kills")) raise(SIGKILL);
  return next<int (*)(int, const sockaddr*, socklen_t)>("connect")(socket, address, bytes);
}

}  // extern "C"
