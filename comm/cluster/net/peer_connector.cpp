#include "convoy/comm/cluster/net/peer_connector.h"

#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <sstream>
#include <thread>

#include "convoy/comm/cluster/net/network_interfaces.h"
#include "convoy/comm/cluster/net/secret.h"
#include "convoy/comm/core/collective.h"
#include "convoy/comm/core/waits.h"
#include "convoy/kernels/base/check.h"

namespace convoy::dist {
namespace {

constexpr std::size_t kMaxStrangers = 256;  // connections without a handshake, besides those of all ranks
constexpr int kMaxAccepted = 64;            // at a time: a stream of them does not keep this rank from others
constexpr std::chrono::milliseconds kPoll(50);
constexpr std::chrono::milliseconds kRetry(50);  // between attempts to connect

struct Claim {
  std::string group;
  int from = -1, to = -1;
};

Claim parse_claim(const std::string& text) {
  Claim claim;
  std::istringstream(text) >> claim.group >> claim.from >> claim.to;
  return claim;
}

/// Throws UsageError if this process may not open `more` further file descriptors.
void check_descriptors(std::size_t more) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  std::error_code ignored;
  const auto open = std::distance(std::filesystem::directory_iterator("/proc/self/fd", ignored), {});
  check(static_cast<rlim_t>(open) + more <= limit.rlim_cur,
        "{} connections to other ranks: found {} open file descriptors of {}; raise the limit with ulimit -n",
        more, open, limit.rlim_cur);
}

}  // namespace

PeerConnector::PeerConnector(Rendezvous& rendezvous, bool listens)
    : rank_(rendezvous.info().rank), all_(rendezvous.all()) {
  std::string local = random_token();  // "number port address address …"
  if (listens) {
    std::vector<std::string> addresses;
    const RankInfo& info = rendezvous.info();
    if (info.nodes == 1)
      addresses = {"127.0.0.1"};
    else if (const std::optional<std::string> chosen = address_of_chosen_interface())
      addresses = {*chosen};
    else if (!info.address.empty())
      addresses = {info.address};
    // An empty host means all interfaces.
    listener_ = listen_at({addresses.empty() ? "" : addresses.front(), 0});
    if (addresses.empty()) addresses = addresses_of_this_host();
    local += fmt::format(" {}", local_port_of(listener_));
    for (const std::string& address : addresses) local += " " + address;
  }
  for (const std::string& text : rendezvous.all_gather(local)) {
    std::istringstream words(text);
    std::string number;
    int port = 0;
    words >> number >> port;
    if (secret_.empty()) secret_ = hmac(job_secret(), number);  // of rank 0
    ports_.push_back(port);
    std::vector<std::string>& addresses = addresses_.emplace_back();
    for (std::string address; words >> address;) addresses.push_back(address);
  }
}

std::string PeerConnector::judge(const std::string& text) const {
  const Claim claim = parse_claim(text);
  const int ranks = static_cast<int>(ports_.size());
  if (claim.to == rank_ && claim.from > rank_ && claim.from < ranks) return "";
  return fmt::format("this is rank {}", rank_);
}

std::map<int, PeerConnector::Connection> PeerConnector::connect(const std::string& group,
                                                                std::span<const int> to,
                                                                std::span<const int> from,
                                                                const Deadline& deadline,
                                                                const std::function<void()>& poll) {
  check_descriptors(to.size() + from.size());
  std::map<int, Connection> connections;
  // Answers those that wait for this rank meanwhile: otherwise they would take it for the one that does not answer.
  const auto serve = [&] {
    {
      const std::lock_guard lock(mutex_);
      accept_waiting_peers();
    }
    if (poll) poll();
  };
  for (const int rank : to) connections.emplace(rank, connect_to(rank, group, deadline, serve));
  std::vector<int> missing(from.begin(), from.end());
  while (true) {
    std::string error;
    {
      const std::lock_guard lock(mutex_);
      accept_waiting_peers();
      error = accept_error_;
      std::erase_if(missing, [&](int rank) {
        const auto found = accepted_.find({group, rank});
        if (found == accepted_.end()) return false;
        connections.emplace(rank, std::move(found->second));
        accepted_.erase(found);
        return true;
      });
    }
    if (missing.empty()) return connections;
    if (poll) poll();
    if (deadline.passed())
      fail<PeerError>("rank {} waited {} s for a TCP connection of {}{}", rank_, deadline.seconds(),
                      format_ranks(missing), error.empty() ? "" : "; it cannot accept connections: " + error);
    wait_for_peers();
  }
}

PeerConnector::Connection PeerConnector::connect_to(int rank, const std::string& group,
                                                    const Deadline& deadline,
                                                    const std::function<void()>& poll) {
  const auto at = static_cast<std::size_t>(rank);
  const bool is_same_host = all_[at].node == all_[static_cast<std::size_t>(rank_)].node;
  // Hosts may have the same address on their inner networks, such as the bridge of Docker.
  const std::vector<std::string> own = is_same_host ? std::vector<std::string>() : addresses_of_this_host();
  std::map<std::string, std::string> reasons;  // by address, why there is no connection
  while (true) {
    for (const std::string& address : addresses_[at]) {
      if (std::ranges::find(own, address) != own.end()) continue;
      std::string reason;
      if (std::optional<Socket> socket = try_connect({address, ports_[at]}, deadline, reason)) {
        Connection connection{.socket = std::move(*socket), .received = ""};
        Handshake handshake = Handshake::connect(secret_, fmt::format("{} {} {}", group, rank_, rank));
        // A proxy may accept any connection, and say nothing.
        const Deadline answer(
            std::min(row_of(Wait::connect).seconds, std::chrono::duration<double>(deadline.left()).count()));
        switch (shake_hands(connection.socket, handshake, connection.received, answer, poll)) {
          case Handshake::State::done: return connection;
          case Handshake::State::running: reason = "it does not answer"; break;
          case Handshake::State::refused: reason = handshake.reason(); break;
          case Handshake::State::other_secret: reason = "it does not know the secret of the job"; break;
          case Handshake::State::not_a_peer: reason = "another program answers"; break;
        }
      }
      // An attempt that the deadline has ended says nothing new.
      if (!deadline.passed() || !reasons.contains(address)) reasons[address] = reason;
      if (poll) poll();
    }
    if (deadline.passed()) break;
    std::this_thread::sleep_for(std::min<Deadline::Clock::duration>(kRetry, deadline.left()));
  }
  std::string list;
  for (const auto& [address, reason] : reasons)
    list += fmt::format("{}{}: {}", list.empty() ? "" : "; ", Endpoint{address, ports_[at]}.text(), reason);
  fail<PeerError>("rank {} cannot reach rank {} by TCP after {} s: {}", rank_, rank, deadline.seconds(),
                  list.empty() ? "it has no address" : list);
}

void PeerConnector::accept_waiting_peers() {
  for (int accepted = 0; accepted < kMaxAccepted; ++accepted) {
    std::optional<Socket> socket = accept_waiting(listener_);
    const int error = errno;
    accept_error_ = !socket && (error == EMFILE || error == ENFILE)
                        ? "all file descriptors are in use; raise the limit with ulimit -n"
                        : "";
    if (!socket) break;
    strangers_.push_back(
        {.connection = {.socket = std::move(*socket), .received = ""},
         .handshake = Handshake::accept(secret_, [this](const std::string& claim) { return judge(claim); }),
         .end = Deadline(row_of(Wait::connect).seconds)});
  }
  std::erase_if(strangers_, [&](Stranger& stranger) { return !advance(stranger); });
  const auto said_less = [](const Stranger& a, const Stranger& b) {
    return a.handshake.claim().empty() && !b.handshake.claim().empty();
  };
  while (strangers_.size() >
         kMaxStrangers + ports_.size())  // the oldest that said nothing, or else the oldest
    strangers_.erase(std::min_element(strangers_.begin(), strangers_.end(), said_less));
}

bool PeerConnector::advance(Stranger& stranger) {
  Connection& connection = stranger.connection;
  if (!receive_waiting(connection.socket, connection.received)) return false;
  std::string out;
  const Handshake::State state = stranger.handshake.advance(connection.received, out);
  // The messages are short and the first ones of the connection: its buffer takes them.
  if (!out.empty() && !send_all(connection.socket, out, Deadline(0))) return false;
  if (state == Handshake::State::running) return !stranger.end.passed();
  if (state != Handshake::State::done) return false;
  const Claim claim = parse_claim(stranger.handshake.claim());
  accepted_.insert_or_assign({claim.group, claim.from}, std::move(connection));
  return false;
}

void PeerConnector::wait_for_peers() {
  std::vector<pollfd> waiting = {{.fd = listener_.descriptor(), .events = POLLIN, .revents = 0}};
  {
    const std::lock_guard lock(mutex_);
    if (!accept_error_.empty()) waiting.front().fd = -1;  // otherwise poll() would return at once
    for (const Stranger& stranger : strangers_)
      waiting.push_back({.fd = stranger.connection.socket.descriptor(), .events = POLLIN, .revents = 0});
  }
  ::poll(waiting.data(), waiting.size(), static_cast<int>(kPoll.count()));
}

}  // namespace convoy::dist
