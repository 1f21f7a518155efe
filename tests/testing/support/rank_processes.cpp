#include "tests/testing/support/rank_processes.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <stdexcept>
#include <thread>

namespace convoy::testing {
namespace {

constexpr std::size_t kMaxText = 4096;  // bytes; a text is one datagram, so it needs no framing

/// Serves exchange() in the parent: receives one text from each rank and sends all of them to each rank,
/// round by round. Returns when a rank has closed its socket.
void serve_exchange(const std::vector<int>& sockets) {
  std::vector<std::string> texts(sockets.size());
  while (true) {
    std::size_t received = 0;
    for (std::size_t rank = 0; rank < sockets.size(); ++rank) {
      char text[kMaxText];
      const ssize_t bytes = recv(sockets[rank], text, sizeof text, 0);
      if (bytes <= 0) continue;
      texts[rank].assign(
          text + 1,
          static_cast<std::size_t>(bytes) - 1);  // skips a byte that makes every datagram non-empty
      ++received;
    }
    if (received < sockets.size()) return;
    for (const int socket : sockets)
      for (const std::string& text : texts) send(socket, (" " + text).data(), text.size() + 1, MSG_NOSIGNAL);
  }
}

std::vector<std::string> exchange_through(int socket, int size, const std::string& local) {
  send(socket, (" " + local).data(), local.size() + 1, MSG_NOSIGNAL);
  std::vector<std::string> texts;
  for (int rank = 0; rank < size; ++rank) {
    char text[kMaxText];
    const ssize_t bytes = recv(socket, text, sizeof text, 0);
    if (bytes <= 0) throw std::runtime_error("exchange: a peer has exited");
    texts.emplace_back(text + 1, static_cast<std::size_t>(bytes) - 1);
  }
  return texts;
}

/// A pipe that is never written to. Every rank holds a write end. A read returns end-of-file once all ranks
/// have closed their write ends or exited.
struct Latch {
  Latch() {
    if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("cannot create a pipe");
  }
  ~Latch() {
    for (int& end : ends) leave(end);
  }
  Latch(const Latch&) = delete;
  Latch& operator=(const Latch&) = delete;

  static void leave(int& end) {
    if (end >= 0) close(end);
    end = -1;
  }
  void wait() {
    leave(ends[1]);
    char unused;
    while (read(ends[0], &unused, 1) != 0) {
    }
  }

  int ends[2];
};

int run_body(const ForkedRank& rank, const std::function<void(const ForkedRank&)>& body) {
  try {
    const ::testing::ScopedTrace trace(__FILE__, __LINE__, "rank " + std::to_string(rank.rank));
    body(rank);
  } catch (const std::exception& error) {
    ADD_FAILURE() << "rank " << rank.rank << ": " << error.what();
  }
  std::fflush(nullptr);
  return ::testing::Test::HasFailure() ? 1 : 0;
}

void wait_for(pid_t process, std::size_t rank, std::chrono::steady_clock::time_point limit) {
  int status = 0;
  while (waitpid(process, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > limit) {
      ADD_FAILURE() << "rank " << rank << " did not exit in time";
      kill(process, SIGKILL);
      waitpid(process, &status, 0);
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL)
    ADD_FAILURE() << "rank " << rank << " was ended by signal " << WTERMSIG(status);
  if (WIFEXITED(status) && WEXITSTATUS(status) != 0)
    ADD_FAILURE() << "rank " << rank << " failed with exit code " << WEXITSTATUS(status);
}

}  // namespace

void run_forked_ranks(int ranks, const std::function<void(const ForkedRank&)>& body,
                      const std::function<void(const std::vector<pid_t>&)>& in_parent, double limit_seconds) {
  std::fflush(nullptr);  // otherwise every child prints buffered output again
  std::vector<int> sockets;
  std::vector<pid_t> processes;
  const pid_t parent = getpid();
  Latch latch;
  for (int rank = 0; rank < ranks; ++rank) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
      throw std::runtime_error("cannot create a socket pair");
    const pid_t process = fork();
    if (process < 0) throw std::runtime_error("fork failed");
    if (process == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);  // ranks must not outlive a killed test
      if (getppid() != parent) _exit(1);
      for (const int other : sockets) close(other);
      close(ends[0]);
      const auto exchange = [&](const std::string& local) { return exchange_through(ends[1], ranks, local); };
      // _exit runs no destructors, which belong to the parent.
      _exit(run_body(
          {.rank = rank, .size = ranks, .exchange = exchange, .wait_for_peers = [&latch] { latch.wait(); }},
          body));
    }
    close(ends[1]);
    sockets.push_back(ends[0]);
    processes.push_back(process);
  }
  Latch::leave(latch.ends[1]);
  const auto limit =
      std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                                             std::chrono::duration<double>(limit_seconds));
  std::thread exchange([&] {
    serve_exchange(sockets);
    for (const int socket : sockets) close(socket);
  });
  if (in_parent) in_parent(processes);
  for (std::size_t rank = 0; rank < processes.size(); ++rank) wait_for(processes[rank], rank, limit);
  exchange.join();
}

}  // namespace convoy::testing
