// Ranks as threads that send messages to each other, with a clock of its own for each: the same counts and the
// same times on every machine. Chapter 16 of the book explains it: learn/book/16-collectives.md.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

namespace links {

/// The cost of a message: `alpha` seconds until the first byte arrives, and `beta` seconds per byte, during which
/// the sender's outgoing and the receiver's incoming link are busy. Ranks of one host have links of their own
/// between them, with the costs host_alpha and host_beta, and share one link to the other hosts.
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

/// All ranks of one run. One of them runs at a time. Messages move when all ranks wait, the earliest first, so
/// a run has one result.
class Network {
 public:
  Network(int ranks, Costs costs) : costs_(costs), ranks_(static_cast<std::size_t>(ranks)) {
    links_.resize(2 * ranks_.size());
  }

  std::vector<Counts> run(const std::function<void(Rank&)>& function) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size(); ++rank)
      threads.emplace_back([this, &function, rank] { run_rank(rank, function); });
    {
      const std::unique_lock lock(mutex_);
      choose_next();
    }
    for (std::thread& thread : threads) thread.join();
    if (!error_.empty()) throw Mismatch(error_);
    std::vector<Counts> result;
    for (const State& state : ranks_) result.push_back(state.counts);
    return result;
  }

  int size() const { return static_cast<int>(ranks_.size()); }

 private:
  friend class Rank;
  struct Stop {};  // ends a rank's thread
  struct Call {    // start_send() or start_receive()
    int rank, peer;
    bool is_send;
    const float* data;
    float* into;
    std::size_t floats;
    double time;
    long number;  // of the calls of its rank
  };
  struct Transfer {
    Call sent, received;
  };
  struct Link {
    double in_free = 0, out_free = 0;
  };
  struct State {
    Counts counts;
    std::deque<Call> open;  // without a transfer
    int under_way = 0;      // transfers that have not been delivered
    long calls = 0;
    double completed = 0;  // the latest arrival of the messages of this rank
    bool is_waiting = false, has_ended = false;
    std::condition_variable turn;
  };

  State& state(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  bool is_between_hosts(const Transfer& transfer) const {
    const int ranks = costs_.ranks_per_host;
    return transfer.sent.rank / ranks != transfer.sent.peer / ranks;
  }
  Link& link(int rank, bool is_between_hosts) {
    return links_[static_cast<std::size_t>(is_between_hosts ? size() + rank / costs_.ranks_per_host : rank)];
  }

  void run_rank(int number, const std::function<void(Rank&)>& function) {
    try {
      {
        std::unique_lock lock(mutex_);
        await_turn(lock, number);
      }
      Rank rank(*this, number);
      function(rank);
      rank.wait();
    } catch (const Stop&) {
    }
    const std::unique_lock lock(mutex_);
    state(number).has_ended = true;
    if (running_ == number) choose_next();
  }

  void await_turn(std::unique_lock<std::mutex>& lock, int rank) {
    state(rank).turn.wait(lock, [&] { return running_ == rank || !error_.empty(); });
    if (!error_.empty()) throw Stop();
  }

  int next_runnable() {
    int next = -1;
    for (int rank = 0; rank < size(); ++rank) {
      const State& each = state(rank);
      if (each.has_ended || (each.is_waiting && (!each.open.empty() || each.under_way > 0))) continue;
      if (next < 0 || each.counts.time < state(next).counts.time) next = rank;
    }
    return next;
  }

  void choose_next() {
    while ((running_ = next_runnable()) < 0 && !transfers_.empty() && error_.empty()) deliver_earliest();
    if (running_ < 0 && error_.empty()) {
      int rank = 0;
      while (rank < size() && state(rank).has_ended) ++rank;
      if (rank < size()) error_ = format_waits(rank);
    }
    for (State& each : ranks_) each.turn.notify_all();
  }

  /// Describes what a rank waits for, what the rank that it waits for waits for, and so on.
  std::string format_waits(int rank) {
    std::vector<bool> seen(ranks_.size(), false);
    std::string text;
    while (!state(rank).has_ended && !seen[static_cast<std::size_t>(rank)]) {
      seen[static_cast<std::size_t>(rank)] = true;
      const Call& call = state(rank).open.front();
      text += (text.empty() ? "rank " : "; rank ") + std::to_string(rank) +
              (call.is_send ? " sends to rank " : " receives from rank ") + std::to_string(call.peer);
      rank = call.peer;
    }
    return text + (state(rank).has_ended ? ", which has ended" : "; all of them wait");
  }

  void start(Call call) {
    const std::unique_lock lock(mutex_);
    const std::string what = "rank " + std::to_string(call.rank) +
                             (call.is_send ? " sends to rank " : " receives from rank ") +
                             std::to_string(call.peer);
    if (call.peer < 0 || call.peer >= size() || call.peer == call.rank)
      stop(what + ", expected another one of " + std::to_string(size()) + " ranks");
    State& own = state(call.rank);
    call.time = own.counts.time;
    call.number = own.calls++;
    std::deque<Call>& others = state(call.peer).open;
    const auto match = std::find_if(others.begin(), others.end(), [&](const Call& other) {
      return other.peer == call.rank && other.is_send != call.is_send;
    });
    if (match == others.end()) return own.open.push_back(call);
    const Transfer transfer = call.is_send ? Transfer{call, *match} : Transfer{*match, call};
    others.erase(match);
    if (transfer.sent.floats != transfer.received.floats)
      stop("rank " + std::to_string(transfer.sent.rank) + " sends " + std::to_string(transfer.sent.floats) +
           " floats to rank " + std::to_string(transfer.sent.peer) + ", which expects " +
           std::to_string(transfer.received.floats));
    ++own.under_way, ++state(call.peer).under_way;
    transfers_.push_back(transfer);
  }

  double begin_of(const Transfer& transfer) {
    const bool is_remote = is_between_hosts(transfer);
    return std::max({transfer.sent.time, transfer.received.time, link(transfer.sent.rank, is_remote).out_free,
                     link(transfer.sent.peer, is_remote).in_free});
  }

  void deliver_earliest() {
    const auto key = [&](const Transfer& each) {
      return std::tuple(begin_of(each), each.sent.number, each.sent.rank);
    };
    const auto earliest = std::min_element(transfers_.begin(), transfers_.end(),
                                           [&](const auto& a, const auto& b) { return key(a) < key(b); });
    const Transfer transfer = *earliest;
    transfers_.erase(earliest);
    const Call& sent = transfer.sent;
    State &sender = state(sent.rank), &receiver = state(sent.peer);
    std::copy(sent.data, sent.data + sent.floats, transfer.received.into);
    const long bytes = 4 * static_cast<long>(sent.floats);
    const bool is_remote = is_between_hosts(transfer);
    const double end =
        begin_of(transfer) + (is_remote ? costs_.beta : costs_.host_beta) * static_cast<double>(bytes);
    link(sent.rank, is_remote).out_free = link(sent.peer, is_remote).in_free = end;
    for (State* each : {&sender, &receiver}) {
      each->completed = std::max(each->completed, end + (is_remote ? costs_.alpha : costs_.host_alpha));
      --each->under_way;
    }
    ++sender.counts.messages;
    sender.counts.bytes_sent += bytes;
    receiver.counts.bytes_received += bytes;
    if (is_remote) sender.counts.bytes_between_hosts += bytes;
  }

  void wait(int rank) {
    std::unique_lock lock(mutex_);
    State& waiting = state(rank);
    waiting.is_waiting = true;
    choose_next();
    await_turn(lock, rank);
    waiting.is_waiting = false;
    waiting.counts.time = std::max(waiting.counts.time, waiting.completed);
  }

  [[noreturn]] void stop(const std::string& error) {
    if (error_.empty()) error_ = error;
    for (State& each : ranks_) each.turn.notify_all();
    throw Stop();
  }

  Costs costs_;
  std::deque<State> ranks_;
  std::vector<Link> links_;  // of the ranks, then of the hosts
  std::vector<Transfer> transfers_;
  std::mutex mutex_;
  int running_ = -1;
  std::string error_;
};

inline int Rank::size() const { return network_.size(); }
inline void Rank::start_send(int to, std::span<const float> data) {
  network_.start({rank_, to, true, data.data(), nullptr, data.size(), 0, 0});
}
inline void Rank::start_receive(int from, std::span<float> data) {
  network_.start({rank_, from, false, nullptr, data.data(), data.size(), 0, 0});
}
inline void Rank::wait() { network_.wait(rank_); }
inline void Rank::compute(double seconds) { network_.state(rank_).counts.time += seconds; }
inline double Rank::time() const { return network_.state(rank_).counts.time; }

/// Runs `function` on each rank, and returns what each has done. Throws Mismatch.
inline std::vector<Counts> run(int ranks, Costs costs, const std::function<void(Rank&)>& function) {
  return Network(ranks, costs).run(function);
}

}  // namespace links
