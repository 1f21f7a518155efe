// Ranks as threads that send messages to each other, with a clock of its own for each: the same counts and
// the same times on every machine. Chapter 16 of the book explains it: learn/book/16-collectives.md.
#pragma once

#include <algorithm>
#include <functional>
#include <span>
#include <stdexcept>
#include <vector>

namespace links {

/// The cost of a message: `alpha` seconds until the first byte arrives, and `beta` seconds per byte, during
/// which the sender's outgoing and the receiver's incoming link are busy. Ranks of one host have links of
/// their own between them, with the costs host_alpha and host_beta, and share one link to the other hosts.
struct Costs {
  double alpha = 0, beta = 0;
  int ranks_per_host = 1;
  double host_alpha = 0, host_beta = 0;
};

/// What one rank has done.
struct Counts {
  long messages = 0, bytes_sent = 0, bytes_received = 0;
  long bytes_between_hosts = 0;  // of those sent
  double time = 0;               // when the rank ended (seconds)
};

/// Sends and receives that do not match: ranks that wait for each other forever, or sizes that differ.
struct Mismatch : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Network;

/// What the function of a rank can do. Between two ranks, messages arrive in the order of the calls.
class Rank {
 public:
  int rank() const { return rank_; }
  int size() const;
  /// Begins to send or to receive. The memory belongs to the message until wait() has returned.
  void start_send(int to, std::span<const float> data);
  void start_receive(int from, std::span<float> data);
  /// Waits for all messages that this rank has started.
  void wait();
  /// Sends, and returns when the receiver has everything.
  void send(int to, std::span<const float> data) { start_send(to, data), wait(); }
  void receive(int from, std::span<float> data) { start_receive(from, data), wait(); }
  /// Sends to one rank and receives from another one (or the same) at once.
  void exchange(int to, std::span<const float> data, int from, std::span<float> into) {
    start_send(to, data), start_receive(from, into), wait();
  }
  /// Computes for some time, while messages are under way.
  void compute(double seconds);
  /// Returns the time of this rank's clock (seconds).
  double time() const;

 private:
  friend class Network;
  Rank(Network& network, int rank) : network_(network), rank_(rank) {}
  Network& network_;
  int rank_;
};

/// Runs `function` on each rank, and returns what each has done. Throws Mismatch.
std::vector<Counts> run(int ranks, Costs costs, const std::function<void(Rank&)>& function);

}  // namespace links

// The network is compiled with the one source of a program, or before it.
#ifndef LINKS_ARE_COMPILED
#include "links.cpp"
#endif
