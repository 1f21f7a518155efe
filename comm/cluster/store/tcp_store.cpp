#include "convoy/comm/cluster/store/tcp_store.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <iterator>
#include <list>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "convoy/comm/bootstrap/host.h"
#include "convoy/comm/cluster/net/message.h"
#include "convoy/comm/cluster/net/secret.h"
#include "convoy/comm/cluster/net/socket.h"
#include "convoy/kernels/base/check.h"

namespace convoy::dist {
namespace {

using Kind = StoreFrame::Kind;

constexpr std::chrono::seconds kHelloTimeout(5);                // for the hello message of a client
constexpr std::chrono::milliseconds kServerShutdownWait(1000);  // for connected clients to disconnect
constexpr std::size_t kMaxStrangers = 256;  // clients that are not identified and may be no ranks
constexpr int kMaxAccepted = 32;            // at a time, before the other clients are served
constexpr std::size_t kMaxConnectionsPerRank = 16;
constexpr std::size_t kMaxTotalBytes = std::size_t{256} << 20;
constexpr std::size_t kMaxHelloBytes = 256;
constexpr std::size_t kNumberBytes = 4;                 // of the length of a run
constexpr std::chrono::milliseconds kAcceptPause(100);  // without a file descriptor for a client
constexpr double kRefusalSeconds = 0.1;                 // for the hello message of a client that is refused

Socket spare_descriptor() { return Socket(open("/dev/null", O_RDONLY | O_CLOEXEC)); }

/// Rank 0 refuses this rank.
struct Refused : PeerError {
  using PeerError::PeerError;
};

/// Returns whether the rank may set the key. A key that ends with "/" and a rank belongs to that rank.
bool may_set(int rank, const std::string& key) {
  return key == kFailureKey || key.ends_with("/" + std::to_string(rank));
}

std::string bytes_of(Kind kind, const std::string& value = "") {
  return StoreFrame{.kind = kind, .key = "", .value = value}.bytes();
}

/// Serves a key-value store to the ranks of one job. Clients are untrusted. The server disconnects clients
/// that do not know the secret, that send invalid messages, that set the keys of other ranks, and that do not
/// identify themselves within 5 s. No client can block it, and the memory that clients can make it use is
/// bounded. Refuses clients with the reason if the process has no file descriptor left.
class TcpStoreServer {
 public:
  /// Starts the thread. Takes ownership of `listener`.
  TcpStoreServer(Socket listener, int world_size, std::string job, std::string secret)
      : listener_(std::move(listener)),
        wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        spare_(spare_descriptor()),
        world_size_(world_size),
        job_(std::move(job)),
        secret_(std::move(secret)),
        thread_([this] { serve(); }) {}

  /// Stops accepting clients and serves the connected ones until they disconnect, for one second at most. A
  /// rank may finish its last exchange first, while other ranks still wait for replies.
  ~TcpStoreServer() {
    stopping_ = true;
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(wake_.descriptor(), &one, sizeof one);
    thread_.join();
  }

  TcpStoreServer(const TcpStoreServer&) = delete;
  TcpStoreServer& operator=(const TcpStoreServer&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  /// The values of the keys "what/rank".
  struct Gathering {
    std::vector<const std::string*> values;  // by rank; null: not set yet
    int count = 0;                           // of those that are set
    std::string reply;                       // to a client that asks for the first value; made once
  };
  struct Client {
    Socket socket;
    Handshake handshake;
    std::string in, out;
    Clock::time_point connected_at;
    int rank = -1;                   // -1 before the hello message
    bool waits = false;              // for `key`, or for all values of `gathering`
    bool close_after_reply = false;  // set for refused clients
    std::string key;
    Gathering* gathering = nullptr;
    std::size_t first = 0;  // the first value of `gathering` that the client asks for
    Clock::time_point wait_until;
  };

  void serve() {
    Clock::time_point end = Clock::time_point::max();
    while (true) {
      if (stopping_ && listener_) {
        listener_.close();  // frees the port for the next job
        end = Clock::now() + kServerShutdownWait;
      }
      if (stopping_ && (Clock::now() >= end || std::none_of(clients_.begin(), clients_.end(),
                                                            [](const Client& c) { return c.rank >= 0; })))
        return;
      std::vector<pollfd> waiting = {{.fd = wake_.descriptor(), .events = POLLIN, .revents = 0},
                                     {.fd = Clock::now() < accept_again_at_ ? -1 : listener_.descriptor(),
                                      .events = POLLIN,
                                      .revents = 0}};
      for (const Client& client : clients_) {
        // Does not read further requests before the reply is sent.
        const short events = client.out.empty() ? POLLIN : POLLOUT;
        waiting.push_back({.fd = client.socket.descriptor(), .events = events, .revents = 0});
      }
      const auto left =
          std::chrono::ceil<std::chrono::milliseconds>(std::min(end, next_event()) - Clock::now());
      poll(waiting.data(), waiting.size(),
           static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 60'000)));
      if (waiting[0].revents != 0) {
        std::uint64_t count = 0;
        [[maybe_unused]] const ssize_t got = ::read(wake_.descriptor(), &count, sizeof count);
      }
      std::size_t at = 2;
      for (auto client = clients_.begin(); client != clients_.end(); ++at) {
        const bool stays = waiting[at].revents == 0 || (client->out.empty() ? read(*client) : write(*client));
        if (!stays) note_refused(*client);
        client = stays ? std::next(client) : clients_.erase(client);
      }
      if (waiting[1].revents != 0) accept_clients();
      answer_waiting_clients();
      close_unidentified_clients();
    }
  }

  /// If there are too many strangers, disconnects the oldest one that has said nothing, or else the oldest: a
  /// stream of silent connections does not displace a rank.
  void accept_clients() {
    const auto is_less_known = [](const Client& a, const Client& b) {
      return std::pair(a.rank >= 0, !a.handshake.claim().empty()) <
             std::pair(b.rank >= 0, !b.handshake.claim().empty());
    };
    for (int accepted = 0; accepted < kMaxAccepted; ++accepted) {
      std::optional<Socket> socket = accept_waiting(listener_);
      if (!socket) {
        if (errno == EMFILE || errno == ENFILE) refuse_client();
        return;
      }
      const auto is_unidentified = [](const Client& client) { return client.rank < 0; };
      if (static_cast<std::size_t>(std::count_if(clients_.begin(), clients_.end(), is_unidentified)) >=
          kMaxStrangers + static_cast<std::size_t>(world_size_))  // all ranks may come at the same time
        clients_.erase(std::min_element(clients_.begin(), clients_.end(), is_less_known));
      const auto judge = [](const std::string& claim) {
        return claim == kStoreClaim ? "" : "this is the rendezvous of a job";
      };
      clients_.push_back({.socket = std::move(*socket),
                          .handshake = Handshake::accept(secret_, judge),
                          .connected_at = Clock::now()});
    }
  }

  /// Accepts a client with the spare descriptor, and refuses it.
  void refuse_client() {
    spare_.close();
    if (const std::optional<Socket> socket = accept_waiting(listener_)) {
      rlimit limit{};
      getrlimit(RLIMIT_NOFILE, &limit);
      std::string hello;  // read first: closing a socket with unread bytes discards those that were sent
      receive_some(*socket, hello, Deadline(kRefusalSeconds));
      send_all(*socket,
               Handshake::refusal(
                   fmt::format("all {} file descriptors of rank 0 are in use; raise its limit with ulimit -n",
                               limit.rlim_cur)),
               Deadline(kRefusalSeconds));
    }
    spare_ = spare_descriptor();
    // Otherwise poll() would report the listener again at once, and this thread would use a whole core.
    if (!spare_) accept_again_at_ = Clock::now() + kAcceptPause;
  }

  // read(), write() and answer() return false if the client is to be disconnected.
  bool read(Client& client) {
    if (!receive_waiting(client.socket, client.in)) return false;
    if (client.handshake.state() == Handshake::State::running && !identify(client)) return false;
    if (client.handshake.state() != Handshake::State::done) return true;
    try {
      const std::size_t max_bytes = client.rank < 0 ? kMaxHelloBytes : StoreFrame::kMaxFrameBytes;
      const std::optional<StoreFrame> frame = take_frame(client.in, max_bytes);
      // Ranks send one request at a time. Disconnects a client that sends another one before the reply.
      return !frame || (client.in.empty() && !client.waits && answer(client, *frame));
    } catch (const DataError&) {
      return false;
    }
  }

  /// Counts a client that has left when this side proved its secret: a stranger, or a rank with another secret.
  void note_refused(const Client& client) {
    if (client.handshake.state() != Handshake::State::running || client.handshake.claim().empty()) return;
    values_[kRefusedKey] = std::to_string(++refused_);
  }

  bool write(Client& client) {
    const ssize_t now = send(client.socket.descriptor(), client.out.data(), client.out.size(), MSG_NOSIGNAL);
    if (now < 0) return errno == EAGAIN || errno == EINTR;
    client.out.erase(0, static_cast<std::size_t>(now));
    return !client.out.empty() || !client.close_after_reply;
  }

  bool answer(Client& client, const StoreFrame& frame) {
    if (client.rank < 0) {
      if (frame.kind != Kind::hello) return false;
      const std::string refusal = admit(frame, client);
      client.close_after_reply = !refusal.empty();
      client.out = client.close_after_reply ? bytes_of(Kind::refused, refusal) : bytes_of(Kind::ok);
    } else if (frame.kind == Kind::set) {
      if (!set(client.rank, frame.key, frame.value)) return false;
      client.out = bytes_of(Kind::ok);
    } else if (frame.kind == Kind::get || frame.kind == Kind::gather) {
      std::int64_t milliseconds = 0;
      std::istringstream question(frame.value);
      question >> milliseconds;
      client.waits = true;
      client.key = frame.key;
      client.gathering = nullptr;
      if (frame.kind == Kind::gather) {
        question >> client.first;
        if (!question || client.first >= static_cast<std::size_t>(world_size_)) return false;
        question.get();  // the space
        const std::string value(std::istreambuf_iterator<char>(question), {});
        if (client.first == 0 && !set(client.rank, frame.key, value)) return false;
        // Only for what this rank has set, so that no other request takes memory.
        const auto found = gatherings_.find(frame.key.substr(0, frame.key.rfind('/')));
        if (found == gatherings_.end() || !values_.contains(frame.key)) return false;
        client.gathering = &found->second;
      }
      client.wait_until =
          Clock::now() + std::chrono::milliseconds(std::clamp<std::int64_t>(milliseconds, 0, 86'400'000));
    } else if (frame.kind == Kind::missing) {
      const auto found = gatherings_.find(frame.key);
      std::string ranks;
      for (int rank = 0; rank < world_size_; ++rank)
        if (found == gatherings_.end() || found->second.values[static_cast<std::size_t>(rank)] == nullptr)
          ranks += fmt::format("{} ", rank);
      client.out = bytes_of(Kind::value, ranks);
    } else {
      return false;
    }
    return true;
  }

  /// Continues the handshake with what has been received. Returns false if the client is to be disconnected.
  static bool identify(Client& client) {
    const Handshake::State state = client.handshake.advance(client.in, client.out);
    client.close_after_reply = state == Handshake::State::refused;
    return state == Handshake::State::running || state == Handshake::State::done || client.close_after_reply;
  }

  /// Returns an empty string if the client is admitted, otherwise the reason for the refusal.
  std::string admit(const StoreFrame& hello, Client& client) {
    int rank = -1, world_size = 0;
    std::string token;
    std::istringstream(hello.value) >> rank >> world_size >> token;
    if (hello.key != job_)
      return fmt::format("the port belongs to job '{}', not '{}'; use a different port for each job", job_,
                         hello.key);
    if (world_size != world_size_)
      return fmt::format("rank 0 has a world size of {}, rank {} of {}", world_size_, rank, world_size);
    if (rank < 0 || rank >= world_size_)
      return fmt::format("found rank {}, expected a rank below {}", rank, world_size_);
    const auto [entry, first] = tokens_.emplace(rank, token);
    if (entry->second != token)
      return fmt::format(
          "a rank {} has already joined: either two processes have this rank, or two jobs use this port",
          rank);
    const auto connections = std::count_if(clients_.begin(), clients_.end(),
                                           [&](const Client& other) { return other.rank == rank; });
    if (static_cast<std::size_t>(connections) >= kMaxConnectionsPerRank)
      return fmt::format("rank {} already has {} connections, the maximum", rank, connections);
    client.rank = rank;
    return "";
  }

  /// Keeps the first value of a key. Returns false if the rank may not set it, or the values take too much memory.
  bool set(int rank, const std::string& key, const std::string& value) {
    if (!may_set(rank, key) || value.size() > StoreFrame::kMaxValueBytes ||
        bytes_ + key.size() + value.size() > kMaxTotalBytes)
      return false;
    const auto [entry, is_new] = values_.emplace(key, value);
    if (!is_new) return true;
    bytes_ += key.size() + value.size();
    if (key == kFailureKey) return true;
    Gathering& gathering = gatherings_[key.substr(0, key.rfind('/'))];
    gathering.values.resize(static_cast<std::size_t>(world_size_));
    gathering.values[static_cast<std::size_t>(rank)] = &entry->second;
    ++gathering.count;
    return true;
  }

  /// Returns the reply to a client that asks for the values from `first`: as many as fit, at least one.
  static std::string reply_of(const Gathering& gathering, std::size_t first) {
    std::string runs;
    for (std::size_t rank = first, end; rank < gathering.values.size(); rank = end) {
      const std::string& value = *gathering.values[rank];
      for (end = rank + 1; end < gathering.values.size() && *gathering.values[end] == value;) ++end;
      if (rank > first && runs.size() + value.size() + 2 * kNumberBytes > StoreFrame::kMaxFrameBytes) break;
      append_number(runs, end - rank, kNumberBytes);
      append_message(runs, value);
    }
    return bytes_of(Kind::value, runs);
  }

  void answer_waiting_clients() {
    const bool has_failed = values_.contains(kFailureKey);
    for (Client& client : clients_) {
      if (!client.waits) continue;
      if (Gathering* const gathering = client.gathering) {
        const bool is_complete = gathering->count == world_size_;
        if (!is_complete && !has_failed && Clock::now() < client.wait_until) continue;
        client.waits = false;
        if (is_complete && client.first == 0 && gathering->reply.empty())
          gathering->reply = reply_of(*gathering, 0);
        client.out = !is_complete        ? bytes_of(Kind::absent)
                     : client.first == 0 ? gathering->reply
                                         : reply_of(*gathering, client.first);
        continue;
      }
      const auto found = values_.find(client.key);
      if (found == values_.end() && Clock::now() < client.wait_until) continue;
      client.waits = false;
      client.out = found == values_.end() ? bytes_of(Kind::absent) : bytes_of(Kind::value, found->second);
    }
  }

  void close_unidentified_clients() {
    clients_.remove_if([now = Clock::now()](const Client& client) {
      return client.rank < 0 && now >= client.connected_at + kHelloTimeout;
    });
  }

  Clock::time_point next_event() const {
    Clock::time_point next = Clock::now() + std::chrono::minutes(1);
    if (accept_again_at_ > Clock::now()) next = accept_again_at_;
    for (const Client& client : clients_) {
      if (client.rank < 0) next = std::min(next, client.connected_at + kHelloTimeout);
      if (client.waits) next = std::min(next, client.wait_until);
    }
    return next;
  }

  Socket listener_;
  Socket wake_;
  Socket spare_;                         // a descriptor that is closed when no other one is left
  Clock::time_point accept_again_at_{};  // after all descriptors were in use
  const int world_size_;
  const std::string job_, secret_;
  std::map<std::string, std::string> values_;
  std::map<std::string, Gathering> gatherings_;
  std::size_t bytes_ = 0;              // total size of keys and values
  int refused_ = 0;                    // see note_refused()
  std::map<int, std::string> tokens_;  // by rank, of the process that joined first
  std::list<Client> clients_;
  std::atomic<bool> stopping_ = false;
  std::thread thread_;  // destroyed first: it uses all other members
};

}  // namespace

TcpStore::TcpStore(const Endpoint& endpoint, const StoreMember& member, const Deadline& deadline,
                   const std::vector<int>& other_ports, const std::string& secret)
    : endpoint_(endpoint), member_(member), secret_(secret), token_(random_token()) {
  StorePlace place{.endpoints = {endpoint}, .secret = secret};
  for (const int port : other_ports) place.endpoints.push_back({endpoint.host, port});
  if (member.rank == 0) place.endpoints = {serve(place.endpoints)};
  connect([&] { return place; }, deadline);
}

TcpStore::TcpStore(const std::string& name, const std::function<StorePlace()>& find,
                   const StoreMember& member, const Deadline& deadline)
    : name_(name), member_(member), token_(random_token()) {
  connect(find, deadline);
}

Endpoint TcpStore::serve(const std::vector<Endpoint>& places) {
  for (Endpoint place : places) try {
      Socket listener = listen_at(place);
      place.port = local_port_of(listener);
      if (place.host.empty()) place.host = "127.0.0.1";  // among all interfaces
      server_ =
          std::make_shared<TcpStoreServer>(std::move(listener), member_.world_size, member_.job, secret_);
      return place;
    } catch (const UsageError&) {
      if (place.port == places.back().port) throw;
    }
  return {};  // not reached
}

void TcpStore::connect(const std::function<StorePlace()>& find, const Deadline& deadline) {
  std::string reason;
  for (auto pause = std::chrono::milliseconds(10);;
       pause = std::min(2 * pause, std::chrono::milliseconds(500))) {
    const StorePlace place = find();
    const bool is_one = place.endpoints.size() == 1;
    std::string now = place.missing;
    secret_ = place.secret;
    for (const Endpoint& endpoint : place.endpoints) {
      endpoint_ = endpoint;
      now = "no reply";
      if (std::optional<Socket> socket = try_connect(endpoint_, deadline, now)) {
        const Deadline answer(
            std::min(kAnswerSeconds, std::chrono::duration<double>(deadline.left()).count()));
        try {
          if (std::unique_ptr<Connection> connection = say_hello(std::move(*socket), answer)) {
            local_address_ = local_address_of(connection->socket);
            remote_address_ = remote_address_of(connection->socket);
            idle_.push_back(std::move(connection));
            return;
          }
          now = "it closes the connection";
        } catch (const Refused& error) {
          if (is_one || place.is_own_secret) throw;
          now = error.what();  // of another job, perhaps
        } catch (const PeerError& error) {
          if (is_one) throw;
          now = error.what();
        }
      }
    }
    // An attempt that the deadline has ended says nothing new.
    if (!deadline.passed() || reason.empty()) reason = now;
    if (deadline.passed()) {
      if (!place.endpoints.empty()) endpoint_ = place.endpoints.front();
      if (member_.rank == 0)
        fail<PeerError>("rank 0 cannot be reached at {}: {}; expected a name or an address of this host, {}",
                        name(), reason, this_host().name);
      fail<PeerError>(
          "rank {} waited {} s for rank 0 at {}{}: {}{}", member_.rank, deadline.seconds(), name(),
          place.endpoints.size() < 2 ? "" : fmt::format(" (one of {} places)", place.endpoints.size()),
          reason,
          place.endpoints.empty() ? "" : "; check that rank 0 runs there and no firewall blocks the port");
    }
    std::this_thread::sleep_for(std::min<Deadline::Clock::duration>(pause, deadline.left()));
  }
}

std::unique_ptr<TcpStore::Connection> TcpStore::say_hello(Socket socket, const Deadline& deadline) {
  auto connection = std::make_unique<Connection>();
  connection->socket = std::move(socket);
  const auto refusal = [&](const std::string& reason) {
    return fmt::format("rank {} is refused at {}: {}", member_.rank, name(), reason);
  };
  const auto refuse_protocol = [&] {
    fail<PeerError>(
        "rank {}: the peer at {} does not speak the rendezvous protocol; another program uses the port",
        member_.rank, name());
  };
  Handshake handshake = Handshake::connect(secret_, kStoreClaim);
  switch (shake_hands(connection->socket, handshake, connection->in, deadline)) {
    case Handshake::State::running: return nullptr;
    case Handshake::State::refused: throw PeerError(refusal(handshake.reason()));
    case Handshake::State::not_a_peer: refuse_protocol(); break;
    case Handshake::State::other_secret:
      throw PeerError(refusal(fmt::format(
          "rank 0 there has another {}: set the same value on all ranks, and use a different port "
          "for each job",
          kSecretVariable)));
    case Handshake::State::done: break;
  }
  const StoreFrame hello{.kind = Kind::hello,
                         .key = member_.job,
                         .value = fmt::format("{} {} {}", member_.rank, member_.world_size, token_)};
  if (!send_all(connection->socket, hello.bytes(), deadline)) return nullptr;
  try {
    while (true) {
      if (const std::optional<StoreFrame> answer = take_frame(connection->in)) {
        if (answer->kind == Kind::refused) throw Refused(refusal(answer->value));
        return connection;
      }
      if (!receive_some(connection->socket, connection->in, deadline)) return nullptr;
    }
  } catch (const DataError&) {
    refuse_protocol();
  }
  return nullptr;  // not reached
}

StoreFrame TcpStore::ask(const StoreFrame& question, const Deadline& deadline) {
  std::unique_ptr<Connection> connection;
  if (!is_lost_) {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      connection = std::move(idle_.back());
      idle_.pop_back();
    }
  }
  for (int attempt = 0; attempt < 2 && !is_lost_ && !deadline.passed(); ++attempt) {
    std::string reason;
    if (!connection)
      if (std::optional<Socket> socket = try_connect(endpoint_, deadline, reason))
        connection = say_hello(std::move(*socket), deadline);
    if (!connection) continue;
    if (send_all(connection->socket, question.bytes(), deadline))
      while (receive_some(connection->socket, connection->in, deadline))
        if (std::optional<StoreFrame> answer = take_frame(connection->in)) {
          const std::lock_guard lock(mutex_);
          idle_.push_back(std::move(connection));
          return std::move(*answer);
        }
    connection = nullptr;  // its reply may still arrive, and would be taken for that of the next request
  }
  if (deadline.passed()) fail<PeerError>("{}: rank 0 does not answer", name());
  is_lost_ = true;
  fail<PeerError>("{}: rank 0 has exited, or the network has closed the connection", name());
}

void TcpStore::set(const std::string& key, const std::string& value, double answer_seconds) {
  check(may_set(member_.rank, key), "{}: rank {} may not set '{}'", name(), member_.rank, key);
  ask({.kind = Kind::set, .key = key, .value = value}, Deadline(answer_seconds));
}

std::optional<std::string> TcpStore::ask_for_value(Kind kind, const std::string& key,
                                                   const std::string& suffix, const Deadline& deadline,
                                                   double answer_seconds) {
  const auto wait = std::chrono::ceil<std::chrono::milliseconds>(deadline.left());
  StoreFrame answer = ask({.kind = kind, .key = key, .value = std::to_string(wait.count()) + suffix},
                          Deadline(std::chrono::duration<double>(wait).count() + answer_seconds));
  if (answer.kind != Kind::value) return std::nullopt;
  return std::move(answer.value);
}

std::optional<std::string> TcpStore::get(const std::string& key, const Deadline& deadline,
                                         double answer_seconds) {
  return ask_for_value(Kind::get, key, "", deadline, answer_seconds);
}

std::vector<int> TcpStore::missing(const std::string& what) {
  std::istringstream ranks(
      ask({.kind = Kind::missing, .key = what, .value = ""}, Deadline(kAnswerSeconds)).value);
  return {std::istream_iterator<int>(ranks), {}};
}

std::optional<std::vector<std::string>> TcpStore::gather(const std::string& what, const std::string& local,
                                                         const Deadline& deadline, double answer_seconds) {
  check(local.size() <= StoreFrame::kMaxValueBytes, "{}: found a value of {} bytes, expected at most {}",
        name(), local.size(), StoreFrame::kMaxValueBytes);
  const auto count = static_cast<std::size_t>(member_.world_size);
  std::vector<std::string> all;
  all.reserve(count);
  while (all.size() < count) {
    const std::optional<std::string> values =
        ask_for_value(Kind::gather, fmt::format("{}/{}", what, member_.rank),
                      fmt::format(" {} {}", all.size(), all.empty() ? local : ""), deadline, answer_seconds);
    if (!values) return std::nullopt;
    std::string_view runs = *values;
    do {
      const std::size_t length = runs.size() < kNumberBytes ? 0 : number_at(runs, 0, kNumberBytes);
      runs.remove_prefix(std::min(kNumberBytes, runs.size()));
      std::optional<std::string> value = take_message(runs, StoreFrame::kMaxValueBytes);
      if (!value || length == 0 || length > count - all.size())
        fail<PeerError>("{}: rank 0 sends an invalid reply", name());
      all.insert(all.end(), length - 1, *value);
      all.push_back(std::move(*value));
    } while (!runs.empty());
  }
  return all;
}

}  // namespace convoy::dist
