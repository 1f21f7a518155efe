// Tests of connections to hosts with slow name servers and unreachable addresses.
#include "convoy/comm/cluster/net/socket.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "convoy/comm/cluster/net/network_interfaces.h"

using Resolver = int (*)(const char*, const char*, const addrinfo*, addrinfo**);

namespace {

std::atomic<int> delay_ms = 0;

}  // namespace

/// Takes precedence over the function of the C library. Resolves "two.test" to 127.0.0.2 and 127.0.0.1, and
/// names slowly.
extern "C" int getaddrinfo(const char* host, const char* port, const addrinfo* hints, addrinfo** found) {
  static const auto real = reinterpret_cast<Resolver>(dlsym(RTLD_NEXT, "getaddrinfo"));
  const std::string name = host;
  const bool is_numeric = (hints->ai_flags & AI_NUMERICHOST) != 0;
  if (name == "own.test" && !is_numeric)
    return real(convoy::dist::addresses_of_this_host().front().c_str(), port, hints, found);
  if (name == "debian.test" && !is_numeric) return real("127.0.1.1", port, hints, found);
  if (name != "two.test" || is_numeric) return real(host, port, hints, found);
  std::this_thread::sleep_for(std::chrono::milliseconds(delay_ms));
  const int error = real("127.0.0.2", port, hints, found);
  return error != 0 ? error : real("127.0.0.1", port, hints, &(*found)->ai_next);
}

namespace convoy::testing {
namespace {

/// Listens at 127.0.0.2 and drops connections, as a firewall does: its queue of connections is full.
class Firewall {
 public:
  explicit Firewall(int port) : listener_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1);
    const auto* generic = reinterpret_cast<const sockaddr*>(&address);
    EXPECT_EQ(bind(listener_.descriptor(), generic, sizeof address), 0);
    EXPECT_EQ(listen(listener_.descriptor(), 0), 0);
    for (int i = 0; i < 4; ++i) {
      dist::Socket& client = clients_.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
      ::connect(client.descriptor(), generic, sizeof address);
    }
  }

 private:
  dist::Socket listener_;
  std::vector<dist::Socket> clients_;
};

class Connect : public ::testing::Test {
 protected:
  void SetUp() override { delay_ms = 0; }

  dist::Socket listener = dist::listen_at({"127.0.0.1", 0});
  int port = dist::local_port_of(listener);
  std::string reason;
};

TEST_F(Connect, TriesTheNextAddressIfTheFirstDoesNotAnswer) {
  const Firewall firewall(port);
  const auto begin = std::chrono::steady_clock::now();
  const auto socket = dist::try_connect({"two.test", port}, dist::Deadline(20), reason);
  ASSERT_TRUE(socket.has_value()) << reason;
  EXPECT_EQ(dist::remote_address_of(*socket), "127.0.0.1");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
}

TEST_F(Connect, TriesTheNextAddressIfTheFirstRefuses) {
  const auto socket = dist::try_connect({"two.test", port}, dist::Deadline(20), reason);
  ASSERT_TRUE(socket.has_value()) << reason;
  EXPECT_EQ(dist::remote_address_of(*socket), "127.0.0.1");
}

/// The resolver waits 5 s for a name server that does not answer before it asks the next one.
TEST_F(Connect, TheTimeOfTheNameServersDoesNotCount) {
  delay_ms = 2300;
  const Firewall firewall(port);
  ASSERT_TRUE(dist::try_connect({"two.test", port}, dist::Deadline(20), reason).has_value()) << reason;
}

TEST_F(Connect, EndsAtTheDeadline) {
  delay_ms = 3000;
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_FALSE(dist::try_connect({"two.test", port}, dist::Deadline(0.2), reason).has_value());
  EXPECT_EQ(reason, "two.test: the name servers do not answer");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
  std::this_thread::sleep_for(std::chrono::milliseconds(3000));  // the thread of the resolver ends
}

TEST_F(Connect, SaysWhyNoAddressAnswers) {
  const int free_port = dist::local_port_of(dist::listen_at({"127.0.0.1", 0}));
  EXPECT_FALSE(dist::try_connect({"two.test", free_port}, dist::Deadline(20), reason).has_value());
  EXPECT_EQ(reason, "Connection refused");
  const Firewall firewall(free_port);
  EXPECT_FALSE(dist::try_connect({"127.0.0.2", free_port}, dist::Deadline(0.3), reason).has_value());
  EXPECT_EQ(reason, "Connection timed out");
}

/// The address of the interface at which a listener of this name listens; "" for all interfaces.
std::string listens_at(const std::string& name) {
  const std::string address = dist::local_address_of(dist::listen_at({name, 0}));
  return address == "::" || address == "0.0.0.0" ? "" : address;
}

TEST(Listen, BindsToTheOwnAddressThatTheNameStandsFor) {
  const std::vector<std::string> own = dist::addresses_of_this_host();
  if (own.empty()) GTEST_SKIP() << "needs an address other than loopback";
  EXPECT_EQ(listens_at("own.test"), own.front());
}

TEST(Listen, BindsToAllInterfacesIfTheNameStandsForLoopbackOrSeveralAddresses) {
  EXPECT_EQ(listens_at("debian.test"), "");
  EXPECT_EQ(listens_at("two.test"), "");
  EXPECT_EQ(listens_at("localhost"), "127.0.0.1");
}

TEST(Listen, ChoosesTheOnlyAddressIfItIsOneOfTheHost) {
  const std::vector<std::string> own = {"10.0.0.1", "192.168.0.1", "fd00::1"};
  EXPECT_EQ(dist::address_to_listen_at({"192.168.0.1"}, own), "192.168.0.1");
  EXPECT_EQ(dist::address_to_listen_at({"10.0.0.1", "192.168.0.1"}, own), std::nullopt);
  EXPECT_EQ(dist::address_to_listen_at({"10.96.0.7"}, own), std::nullopt) << "a service of Kubernetes";
  EXPECT_EQ(dist::address_to_listen_at({}, own), std::nullopt);
}

}  // namespace
}  // namespace convoy::testing
