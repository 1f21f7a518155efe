// The network of links.h.
#include "links.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>

namespace links {

/// All ranks of one run. One of them runs at a time. Messages move when all ranks wait, the earliest first,
/// so a run has one result.
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

int Rank::size() const { return network_.size(); }
void Rank::start_send(int to, std::span<const float> data) {
  network_.start({rank_, to, true, data.data(), nullptr, data.size(), 0, 0});
}
void Rank::start_receive(int from, std::span<float> data) {
  network_.start({rank_, from, false, nullptr, data.data(), data.size(), 0, 0});
}
void Rank::wait() { network_.wait(rank_); }
void Rank::compute(double seconds) { network_.state(rank_).counts.time += seconds; }
double Rank::time() const { return network_.state(rank_).counts.time; }

std::vector<Counts> run(int ranks, Costs costs, const std::function<void(Rank&)>& function) {
  return Network(ranks, costs).run(function);
}

}  // namespace links
