// Tests of the secret of a job and of the handshake of its connections.
#include "convoy/comm/cluster/net/handshake.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "convoy/comm/cluster/net/message.h"
#include "convoy/comm/cluster/net/secret.h"
#include "convoy/kernels/base/error.h"
#include "tests/testing/support/errors.h"

namespace convoy::testing {
namespace {

using dist::Handshake;
using ::testing::HasSubstr;
using State = Handshake::State;

const std::string kSecret = "0123456789abcdef";

std::string admit_all(const std::string&) { return ""; }

/// Both sides of a connection, and what each has sent to the other.
struct Sides {
  Handshake connector, acceptor;
  std::string to_acceptor, to_connector;

  /// Moves the bytes of both sides until none is left.
  void run() {
    do {
      connector.advance(to_connector, to_acceptor);
      acceptor.advance(to_acceptor, to_connector);
    } while (connector.state() == State::running && !to_connector.empty());
  }
};

Sides sides_with(const std::string& connector, const std::string& acceptor) {
  return {Handshake::connect(connector, "rank 3"), Handshake::accept(acceptor, admit_all), "", ""};
}

TEST(Secret, IsReadFromTheEnvironment) {
  unsetenv(dist::kSecretVariable);
  EXPECT_EQ(dist::job_secret(), "");
  setenv(dist::kSecretVariable, kSecret.c_str(), 1);
  EXPECT_EQ(dist::job_secret(), kSecret);
  setenv(dist::kSecretVariable, "0123456789abcde", 1);
  EXPECT_THAT(message_of<UsageError>([] { dist::job_secret(); }),
              HasSubstr("found 15 characters, expected at least 16"));
  unsetenv(dist::kSecretVariable);
}

TEST(Secret, HmacIsThatOfTheStandard) {
  // RFC 4231, test cases 2 and 1.
  EXPECT_EQ(dist::hmac("Jefe", "what do ya want for nothing?"),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(dist::hmac(std::string(20, '\x0b'), "Hi There"),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(dist::hmac("", "").size(), 64u);
}

TEST(Secret, TokensDiffer) {
  const std::string token = dist::random_token();
  EXPECT_EQ(token.size(), 32u);
  EXPECT_NE(token, dist::random_token());
}

TEST(Message, IsTakenWhenItIsComplete) {
  std::string bytes, all;
  dist::append_message(all, "one");
  dist::append_message(all, "");
  std::vector<std::string> found;
  for (const char byte : all) {
    bytes += byte;
    while (const auto text = dist::take_message(bytes, 3)) found.push_back(*text);
  }
  EXPECT_EQ(found, (std::vector<std::string>{"one", ""}));
  EXPECT_EQ(bytes, "");
  dist::append_message(bytes, "four");
  EXPECT_THAT(message_of<DataError>([&] { dist::take_message(bytes, 3); }),
              HasSubstr("4 bytes, expected at most 3"));
}

TEST(Handshake, ConnectsSidesWithTheSameSecret) {
  for (const std::string& secret : {kSecret, std::string()}) {
    Sides sides = sides_with(secret, secret);
    sides.run();
    EXPECT_EQ(sides.connector.state(), State::done);
    EXPECT_EQ(sides.acceptor.state(), State::done);
    EXPECT_EQ(sides.acceptor.claim(), "rank 3");
  }
}

TEST(Handshake, LeavesTheBytesThatFollow) {
  Sides sides = sides_with(kSecret, kSecret);
  sides.connector.advance(sides.to_connector, sides.to_acceptor);
  sides.acceptor.advance(sides.to_acceptor, sides.to_connector);
  sides.connector.advance(sides.to_connector, sides.to_acceptor);
  sides.to_acceptor += "data";
  sides.acceptor.advance(sides.to_acceptor, sides.to_connector);
  EXPECT_EQ(sides.acceptor.state(), State::done);
  EXPECT_EQ(sides.to_acceptor, "data");
}

TEST(Handshake, DetectsAnotherSecretOnBothSides) {
  Sides sides = sides_with(kSecret, kSecret + "x");
  sides.run();
  EXPECT_EQ(sides.connector.state(), State::other_secret);
  // A connector that goes on all the same.
  dist::append_message(sides.to_acceptor, dist::hmac(kSecret, "connects"));
  sides.acceptor.advance(sides.to_acceptor, sides.to_connector);
  EXPECT_EQ(sides.acceptor.state(), State::other_secret);
}

TEST(Handshake, AnAnswerIsGoodForOneConnection) {
  Sides first = sides_with(kSecret, kSecret);
  first.connector.advance(first.to_connector, first.to_acceptor);
  const std::string greeting = first.to_acceptor;
  first.acceptor.advance(first.to_acceptor, first.to_connector);
  const std::string answer = first.to_connector;
  first.connector.advance(first.to_connector, first.to_acceptor);
  const std::string proof = first.to_acceptor;
  // An impostor repeats what the connector has sent before.
  Handshake acceptor = Handshake::accept(kSecret, admit_all);
  std::string in = greeting + proof, out;
  EXPECT_EQ(acceptor.advance(in, out), State::other_secret);
  // Another one repeats what the acceptor has sent before.
  Handshake connector = Handshake::connect(kSecret, "rank 3");
  in = answer;
  EXPECT_EQ(connector.advance(in, out), State::other_secret);
}

/// An impostor opens a second connection to the rank, and returns its own challenge to it.
TEST(Handshake, ReflectionFails) {
  Handshake acceptor = Handshake::accept(kSecret, admit_all), other = Handshake::accept(kSecret, admit_all);
  std::string in, out;
  dist::append_message(in, "convoy-1 mine rank 3");
  acceptor.advance(in, out);
  const std::string challenge = *dist::take_message(out, 512);  // "answer NUMBER PROOF"
  const std::string number = challenge.substr(7, 32);
  std::string second_in, second_out;
  dist::append_message(second_in, "convoy-1 " + number + " rank 3");
  other.advance(second_in, second_out);
  const std::string answer = *dist::take_message(second_out, 512);
  dist::append_message(in, answer.substr(answer.rfind(' ') + 1));
  EXPECT_EQ(acceptor.advance(in, out), State::other_secret);
}

TEST(Handshake, RefusesAClaim) {
  Sides sides{Handshake::connect(kSecret, "rank 3"),
              Handshake::accept(kSecret, [](const std::string& claim) { return "no " + claim + "\x1b[2J"; }),
              "", ""};
  sides.run();
  EXPECT_EQ(sides.connector.state(), State::refused);
  EXPECT_EQ(sides.connector.reason(), "no rank 3?[2J");  // no control characters
  EXPECT_EQ(sides.acceptor.state(), State::refused);
}

TEST(Handshake, RefusesAnotherVersion) {
  Handshake acceptor = Handshake::accept(kSecret, admit_all),
            connector = Handshake::connect(kSecret, "rank 3");
  std::string in, out;
  dist::append_message(in, "convoy-2 number rank 3");
  EXPECT_EQ(acceptor.advance(in, out), State::refused);
  EXPECT_EQ(connector.advance(out, in), State::refused);
  EXPECT_THAT(connector.reason(), HasSubstr("the protocol is convoy-1, not convoy-2"));
}

TEST(Handshake, RecognizesOtherPrograms) {
  for (const std::string& text :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(100, '\0'), std::string("\4\0\0\0none", 8)}) {
    Handshake acceptor = Handshake::accept(kSecret, admit_all),
              connector = Handshake::connect(kSecret, "rank 3");
    std::string in = text, out;
    EXPECT_EQ(acceptor.advance(in, out), State::not_a_peer);
    EXPECT_EQ(out, "");
    in = text;
    EXPECT_EQ(connector.advance(in, out), State::not_a_peer);
  }
}

TEST(Handshake, RandomChangesAreNotAccepted) {
  std::mt19937 random(5);
  for (int i = 0; i < 2000; ++i) {
    Sides sides = sides_with(kSecret, kSecret);
    sides.connector.advance(sides.to_connector, sides.to_acceptor);
    if (i % 2 == 0)
      sides.to_acceptor[random() % sides.to_acceptor.size()] ^= static_cast<char>(1 << (random() % 8));
    sides.acceptor.advance(sides.to_acceptor, sides.to_connector);
    if (sides.to_connector.empty()) continue;
    if (i % 2 == 1)
      sides.to_connector[random() % sides.to_connector.size()] ^= static_cast<char>(1 << (random() % 8));
    sides.connector.advance(sides.to_connector, sides.to_acceptor);
    EXPECT_NE(sides.connector.state(), State::done) << i;
  }
}

TEST(Handshake, BlocksUntilTheDeadline) {
  const dist::Socket listener = dist::listen_at({"127.0.0.1", 0});
  std::string reason, in;
  const auto socket =
      dist::try_connect({"127.0.0.1", dist::local_port_of(listener)}, dist::Deadline(20), reason);
  Handshake handshake = Handshake::connect(kSecret, "rank 3");
  int polls = 0;
  EXPECT_EQ(shake_hands(*socket, handshake, in, dist::Deadline(0.4), [&] { ++polls; }), State::running);
  EXPECT_GE(polls, 2);
  EXPECT_THROW(shake_hands(*socket, handshake, in, dist::Deadline(20), [] { throw PeerError("stop"); }),
               PeerError);
}

}  // namespace
}  // namespace convoy::testing
