#include "tests/support/rank_processes.h"

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

constexpr std::size_t kLongestText = 4096;  // a datagram, so that texts need no frames

/// Brings every round of texts together, until all ranks have hung up. One that hangs up amid a round ends
/// the exchange for all.
void serve_exchange(const std::vector<int>& sockets) {
  std::vector<std::string> texts(sockets.size());
  while (true) {
    std::size_t came = 0;
    for (std::size_t rank = 0; rank < sockets.size(); ++rank) {
      char text[kLongestText];
      const ssize_t bytes = recv(sockets[rank], text, sizeof text, 0);
      if (bytes <= 0) continue;
      texts[rank].assign(text + 1,
                         static_cast<std::size_t>(bytes) - 1);  // after a byte that makes none empty
      ++came;
    }
    if (came < sockets.size()) return;
    for (const int socket : sockets)
      for (const std::string& text : texts) send(socket, (" " + text).data(), text.size() + 1, MSG_NOSIGNAL);
  }
}

std::vector<std::string> exchange_through(int socket, int size, const std::string& mine) {
  send(socket, (" " + mine).data(), mine.size() + 1, MSG_NOSIGNAL);
  std::vector<std::string> texts;
  for (int rank = 0; rank < size; ++rank) {
    char text[kLongestText];
    const ssize_t bytes = recv(socket, text, sizeof text, 0);
    if (bytes <= 0) throw std::runtime_error("the exchange of texts has ended: a rank has gone");
    texts.emplace_back(text + 1, static_cast<std::size_t>(bytes) - 1);
  }
  return texts;
}

/// A pipe into which nothing is ever written. Every rank holds an end to write to, so who reads comes to the
/// end of the file when all of them have closed theirs, or have died.
struct Latch {
  Latch() {
    if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
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
    char nothing;
    while (read(ends[0], &nothing, 1) != 0) {
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
      ADD_FAILURE() << "rank " << rank << " does not end";
      kill(process, SIGKILL);
      waitpid(process, &status, 0);
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL)
    ADD_FAILURE() << "rank " << rank << " ended by signal " << WTERMSIG(status);
  if (WIFEXITED(status) && WEXITSTATUS(status) != 0)
    ADD_FAILURE() << "rank " << rank << " failed, with exit code " << WEXITSTATUS(status);
}

}  // namespace

void run_forked_ranks(int ranks, const std::function<void(const ForkedRank&)>& body,
                      const std::function<void(const std::vector<pid_t>&)>& beside, double limit_seconds) {
  std::fflush(nullptr);  // or every child prints it again
  std::vector<int> sockets;
  std::vector<pid_t> processes;
  const pid_t parent = getpid();
  Latch latch;
  for (int rank = 0; rank < ranks; ++rank) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
      throw std::runtime_error("no socket pair");
    const pid_t process = fork();
    if (process < 0) throw std::runtime_error("fork failed");
    if (process == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);  // a test that is killed takes its ranks along
      if (getppid() != parent) _exit(1);
      for (const int of_others : sockets) close(of_others);
      close(ends[0]);
      const auto exchange = [&](const std::string& mine) { return exchange_through(ends[1], ranks, mine); };
      // No destructors, no reports of what this process only has a copy of.
      _exit(run_body({.rank = rank,
                      .size = ranks,
                      .exchange = exchange,
                      .wait_for_the_rest = [&latch] { latch.wait(); }},
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
  if (beside) beside(processes);
  for (std::size_t rank = 0; rank < processes.size(); ++rank) wait_for(processes[rank], rank, limit);
  exchange.join();
}

}  // namespace convoy::testing
