#include "convoy/comm/cluster/net/handshake.h"

#include <algorithm>
#include <chrono>
#include <sstream>
#include <utility>

#include "convoy/comm/cluster/net/message.h"
#include "convoy/comm/cluster/net/secret.h"
#include "convoy/kernels/base/check.h"

namespace convoy::dist {
namespace {

constexpr const char* kVersion = "convoy-1";
constexpr const char* kAnswer = "answer";
constexpr const char* kRefusal = "refused";
constexpr double kPollSeconds = 0.1;

}  // namespace

Handshake::Handshake(bool accepts, std::string secret, std::string claim,
                     std::function<std::string(const std::string&)> judge)
    : accepts_(accepts), secret_(std::move(secret)), claim_(std::move(claim)), judge_(std::move(judge)) {
  (accepts_ ? acceptor_number_ : connector_number_) = random_token();
}

Handshake Handshake::connect(const std::string& secret, const std::string& claim) {
  return {false, secret, claim, nullptr};
}

Handshake Handshake::accept(const std::string& secret, std::function<std::string(const std::string&)> judge) {
  return {true, secret, "", std::move(judge)};
}

std::string Handshake::refusal(const std::string& reason) {
  std::string bytes;
  const std::string text = fmt::format("{} {}", kRefusal, reason);
  append_message(bytes, text.substr(0, kMaxMessageBytes));
  return bytes;
}

std::string Handshake::proof(const char* side) const {
  return hmac(secret_, fmt::format("{} {} {} {}", side, connector_number_, acceptor_number_, claim_));
}

Handshake::State Handshake::advance(std::string& in, std::string& out) {
  if (!accepts_ && !std::exchange(has_greeted_, true))
    append_message(out, fmt::format("{} {} {}", kVersion, connector_number_, claim_));
  try {
    while (state_ == State::running) {
      const std::optional<std::string> message = take_message(in, kMaxMessageBytes);
      if (!message) break;
      state_ = read(*message, out);
    }
  } catch (const DataError&) {
    state_ = State::not_a_peer;
  }
  return state_;
}

Handshake::State Handshake::read(const std::string& message, std::string& out) {
  if (!accepts_) return read_answer(message, out);
  if (connector_number_.empty()) return read_greeting(message, out);
  return is_equal_secret(message, proof("connects")) ? State::done : State::other_secret;
}

Handshake::State Handshake::read_greeting(const std::string& message, std::string& out) {
  std::istringstream words(message);
  std::string version;
  words >> version >> connector_number_;
  if (!version.starts_with("convoy-") || connector_number_.empty()) return State::not_a_peer;
  if (version != kVersion)
    return refuse(fmt::format("the protocol is {}, not {}; all ranks need the same version of Convoy",
                              kVersion, version),
                  out);
  words.get();  // the space
  std::getline(words, claim_, '\0');
  const std::string reason = judge_(claim_);
  if (!reason.empty()) return refuse(reason, out);
  append_message(out, fmt::format("{} {} {}", kAnswer, acceptor_number_, proof("accepts")));
  return State::running;
}

Handshake::State Handshake::read_answer(const std::string& message, std::string& out) {
  std::istringstream words(message);
  std::string kind, code;
  words >> kind;
  if (kind == kRefusal) {
    words.get();
    std::getline(words, reason_, '\0');
    // The peer may be any program: it must not control the terminal that shows its text.
    std::replace_if(
        reason_.begin(), reason_.end(), [](unsigned char c) { return c < ' ' || c == 127; }, '?');
    return State::refused;
  }
  words >> acceptor_number_ >> code;
  if (kind != kAnswer || code.empty()) return State::not_a_peer;
  if (!is_equal_secret(code, proof("accepts"))) return State::other_secret;
  append_message(out, proof("connects"));
  return State::done;
}

Handshake::State Handshake::refuse(const std::string& reason, std::string& out) {
  reason_ = reason;
  out += refusal(reason);
  return State::refused;
}

Handshake::State shake_hands(const Socket& socket, Handshake& handshake, std::string& in,
                             const Deadline& deadline, const std::function<void()>& poll) {
  while (true) {
    std::string out;
    const Handshake::State state = handshake.advance(in, out);
    if (!out.empty() && !send_all(socket, out, deadline)) return Handshake::State::running;
    if (state != Handshake::State::running) return state;
    if (poll) poll();
    const Deadline slice(std::min(kPollSeconds, std::chrono::duration<double>(deadline.left()).count()));
    if (!receive_some(socket, in, slice) && (!slice.passed() || deadline.passed())) return state;
  }
}

}  // namespace convoy::dist
