// The handshake of a connection: both sides prove that they know a secret, which is not sent.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "convoy/comm/cluster/net/socket.h"
#include "convoy/comm/core/deadline.h"

namespace convoy::dist {

/// One side of a handshake by challenge and response (HMAC-SHA256, RFC 2104). C has opened the connection, and A
/// has accepted it:
///
///     C -> A  "convoy-1", a random number c, and a claim: who C is, and what it wants
///     A -> C  a random number a, and the HMAC of ("accepts", c, a, claim)
///     C -> A  the HMAC of ("connects", c, a, claim)
///
/// Each side can answer only with the secret, and each answer is good for one connection. The words "accepts" and
/// "connects" prevent that an impostor returns the answer of a rank to that rank. The data that follow are
/// neither encrypted nor authenticated. A refusal replaces the answer of A; its text is not authenticated.
///
/// The class works on bytes that the caller has received and is to send, so it serves any number of connections
/// in one thread.
class Handshake {
 public:
  enum class State : std::uint8_t {
    running,       // needs more bytes
    done,          // the peer knows the secret
    refused,       // by the other side: see reason()
    other_secret,  // the peer has another secret
    not_a_peer     // the bytes are those of another program
  };
  static constexpr std::size_t kMaxMessageBytes = 512;

  /// Begins the side that has opened the connection. `claim` has at most 256 bytes.
  static Handshake connect(const std::string& secret, const std::string& claim);
  /// Begins the side that has accepted the connection. `judge` returns an empty string if the claim of the
  /// peer is acceptable, otherwise the reason for a refusal. The claim is not authenticated at this point.
  static Handshake accept(const std::string& secret, std::function<std::string(const std::string&)> judge);
  /// Returns the message that refuses a connection before its handshake.
  static std::string refusal(const std::string& reason);

  /// Takes messages of the peer from the front of `in` and appends the replies to `out`. Bytes after the
  /// handshake stay in `in`. A refusing side is `refused` as well, once it has appended the refusal.
  State advance(std::string& in, std::string& out);
  State state() const { return state_; }
  /// Returns the claim of the side that has opened the connection.
  const std::string& claim() const { return claim_; }
  /// Returns why the other side has refused, or this one.
  const std::string& reason() const { return reason_; }

 private:
  Handshake(bool accepts, std::string secret, std::string claim,
            std::function<std::string(const std::string&)> judge);
  State read(const std::string& message, std::string& out);
  State read_greeting(const std::string& message, std::string& out);
  State read_answer(const std::string& message, std::string& out);
  State refuse(const std::string& reason, std::string& out);
  std::string proof(const char* side) const;

  bool accepts_;
  std::string secret_, claim_;
  std::function<std::string(const std::string&)> judge_;
  std::string connector_number_, acceptor_number_;
  std::string reason_;
  State state_ = State::running;
  bool has_greeted_ = false;  // the side that connects
};

/// Performs a handshake on a connection. Blocks until its end or the deadline; returns State::running if the
/// deadline has passed or the peer has closed the connection. Bytes that the peer has sent after the
/// handshake are appended to `in`. Calls `poll`, unless it is empty, ten times a second; an exception from it
/// ends the wait.
Handshake::State shake_hands(const Socket& socket, Handshake& handshake, std::string& in,
                             const Deadline& deadline, const std::function<void()>& poll = {});

}  // namespace convoy::dist
