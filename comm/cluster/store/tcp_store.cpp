#include "convoy/comm/cluster/store/tcp_store.h"

#include <algorithm>
#include <thread>

#include "convoy/comm/cluster/net/secret.h"
#include "convoy/kernels/base/check.h"

namespace convoy::dist {
namespace {

using Kind = StoreFrame::Kind;

}  // namespace

TcpStore::TcpStore(const Endpoint& endpoint, const StoreMember& member, const Deadline& deadline,
                   const std::vector<int>& other_ports)
    : endpoint_(endpoint), member_(member), secret_(job_secret()), token_(random_token()) {
  std::vector<int> ports = {endpoint.port};
  ports.insert(ports.end(), other_ports.begin(), other_ports.end());
  if (member.rank == 0) {
    serve(ports);
    ports = {endpoint_.port};
  }
  std::unique_ptr<Connection> first = connect(ports, deadline);
  local_address_ = local_address_of(first->socket);
  remote_address_ = remote_address_of(first->socket);
  idle_.push_back(std::move(first));
}

void TcpStore::serve(const std::vector<int>& ports) {
  for (const int port : ports) {
    endpoint_.port = port;
    try {
      server_ =
          std::make_unique<TcpStoreServer>(listen_at(endpoint_), member_.world_size, member_.job, secret_);
      return;
    } catch (const UsageError&) {
      if (port == ports.back()) throw;
    }
  }
}

std::unique_ptr<TcpStore::Connection> TcpStore::connect(const std::vector<int>& ports,
                                                        const Deadline& deadline) {
  std::string reason = "no reply";
  for (auto pause = std::chrono::milliseconds(10);;
       pause = std::min(2 * pause, std::chrono::milliseconds(500))) {
    for (const int port : ports) {
      endpoint_.port = port;
      if (std::optional<Socket> socket = try_connect(endpoint_, deadline, reason)) {
        const Deadline answer(
            std::min(kAnswerSeconds, std::chrono::duration<double>(deadline.left()).count()));
        try {
          if (std::unique_ptr<Connection> connection = say_hello(std::move(*socket), answer))
            return connection;
          reason = "it closes the connection";
        } catch (const PeerError& error) {
          if (ports.size() == 1) throw;
          reason = error.what();  // of another job, perhaps
        }
      }
    }
    if (deadline.passed()) {
      endpoint_.port = ports.front();
      fail<PeerError>(
          "rank {} waited {} s for rank 0 at {}{}: {}; check that rank 0 runs there and no firewall blocks "
          "the port",
          member_.rank, deadline.seconds(), name(),
          ports.size() == 1 ? "" : fmt::format(" (one of {} ports)", ports.size()), reason);
    }
    std::this_thread::sleep_for(std::min<Deadline::Clock::duration>(pause, deadline.left()));
  }
}

std::unique_ptr<TcpStore::Connection> TcpStore::say_hello(Socket socket, const Deadline& deadline) {
  auto connection = std::make_unique<Connection>();
  connection->socket = std::move(socket);
  const auto refuse = [&](const std::string& reason) {
    fail<PeerError>("rank {} is refused at {}: {}", member_.rank, name(), reason);
  };
  const auto refuse_protocol = [&] {
    fail<PeerError>(
        "rank {}: the peer at {} does not speak the rendezvous protocol; another program uses the port",
        member_.rank, name());
  };
  Handshake handshake = Handshake::connect(secret_, kStoreClaim);
  switch (shake_hands(connection->socket, handshake, connection->in, deadline)) {
    case Handshake::State::running: return nullptr;
    case Handshake::State::refused: refuse(handshake.reason()); break;
    case Handshake::State::not_a_peer: refuse_protocol(); break;
    case Handshake::State::other_secret:
      refuse(fmt::format(
          "rank 0 there has another {}: set the same value on all ranks, and use a different port "
          "for each job",
          kSecretVariable));
      break;
    case Handshake::State::done: break;
  }
  const StoreFrame hello{.kind = Kind::hello,
                         .key = member_.job,
                         .value = fmt::format("{} {} {}", member_.rank, member_.world_size, token_)};
  if (!send_all(connection->socket, hello.bytes(), deadline)) return nullptr;
  try {
    while (true) {
      if (const std::optional<StoreFrame> answer = take_frame(connection->in)) {
        if (answer->kind == Kind::refused) refuse(answer->value);
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
    if (std::optional<StoreFrame> answer = ask_on(*connection, question, deadline)) {
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

std::optional<StoreFrame> TcpStore::ask_on(Connection& connection, const StoreFrame& question,
                                           const Deadline& deadline) {
  if (!send_all(connection.socket, question.bytes(), deadline)) return std::nullopt;
  while (receive_some(connection.socket, connection.in, deadline))
    if (std::optional<StoreFrame> answer = take_frame(connection.in)) return answer;
  return std::nullopt;
}

void TcpStore::set(const std::string& key, const std::string& value, double answer_seconds) {
  check(may_set(member_.rank, key), "{}: rank {} may not set '{}'", name(), member_.rank, key);
  ask({.kind = Kind::set, .key = key, .value = value}, Deadline(answer_seconds));
}

std::optional<std::string> TcpStore::get(const std::string& key, const Deadline& deadline,
                                         double answer_seconds) {
  // The server enforces the timeout. The client waits longer, so that no reply is lost.
  const auto wait = std::chrono::ceil<std::chrono::milliseconds>(deadline.left());
  const StoreFrame answer = ask({.kind = Kind::get, .key = key, .value = std::to_string(wait.count())},
                                Deadline(std::chrono::duration<double>(wait).count() + answer_seconds));
  if (answer.kind != Kind::value) return std::nullopt;
  return answer.value;
}

}  // namespace convoy::dist
