#include "convoy/comm/control/agent_tree.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sstream>
#include <thread>
#include <utility>

#include "convoy/comm/bootstrap/store/store_member.h"
#include "convoy/comm/core/rank_text.h"
#include "convoy/kernels/base/check.h"

namespace convoy::dist {
namespace {

constexpr double kHelloSeconds = 5;  // for the first message of a connection
constexpr double kLeaveSeconds = 1;  // for the other agents to close their connections
constexpr std::size_t kMaxHelloBytes = 256;
constexpr std::size_t kSizeBytes = 4;  // of the length in front of each message, little endian

/// Returns the addresses at which other hosts may reach this one: those of all interfaces that are up and
/// running, except for loopback and link-local addresses.
std::vector<std::string> addresses_of_this_host() {
  std::vector<std::string> addresses;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return addresses;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    constexpr unsigned kUsable = IFF_UP | IFF_RUNNING;
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_LOOPBACK) != 0) continue;
    if ((entry->ifa_flags & kUsable) != kUsable) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const socklen_t bytes = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    char text[NI_MAXHOST] = {};
    if (getnameinfo(entry->ifa_addr, bytes, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0) continue;
    if (std::strchr(text, '%') == nullptr) addresses.emplace_back(text);  // link-local: with an interface
  }
  freeifaddrs(list);
  return addresses;
}

/// Removes a complete message from the front of `bytes`; nullopt if there is none. Throws DataError if the
/// message is longer than `max_bytes`.
std::optional<std::string> take_message(std::string& bytes, std::size_t max_bytes) {
  if (bytes.size() < kSizeBytes) return std::nullopt;
  std::size_t size = 0;
  for (std::size_t i = 0; i < kSizeBytes; ++i)
    size |= static_cast<std::size_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
  if (size > max_bytes) fail<DataError>("found a message of {} bytes, expected at most {}", size, max_bytes);
  if (bytes.size() < kSizeBytes + size) return std::nullopt;
  std::string text = bytes.substr(kSizeBytes, size);
  bytes.erase(0, kSizeBytes + size);
  return text;
}

/// Returns whether two secrets are equal, in a time that does not depend on where they differ.
bool is_equal(const std::string& a, const std::string& b) {
  unsigned difference = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    difference |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]);
  return difference == 0;
}

}  // namespace

std::unique_ptr<AgentTree> AgentTree::connect(const RankInfo& info, const std::vector<RankInfo>& all,
                                              const JobExchange& exchange, const Deadline& deadline) {
  if (info.nodes == 1) return nullptr;
  std::vector<int> children;
  for (int child = kFanOut * info.node + 1; child <= kFanOut * (info.node + 1) && child < info.nodes; ++child)
    children.push_back(child);
  const bool is_agent = info.local_rank == 0;
  Socket listener;
  std::string local;  // "token port address address …"
  if (is_agent) {
    // Without a known address, "any" is a name that has none, which listens on all interfaces.
    listener = listen_at({info.address.empty() ? "any" : info.address, 0});
    local = fmt::format("{} {}", random_token(), local_port_of(listener));
    for (const std::string& address :
         info.address.empty() ? addresses_of_this_host() : std::vector<std::string>{info.address})
      local += " " + address;
  }
  const std::vector<std::string> texts = exchange(local);
  if (!is_agent) return nullptr;
  std::string token;  // of rank 0, for the whole job
  std::istringstream(texts.front()) >> token;
  std::unique_ptr<AgentTree> tree(new AgentTree(info.node, std::move(children)));
  if (!tree->is_root()) {
    const auto agent = std::find_if(all.begin(), all.end(), [&](const RankInfo& other) {
      return other.node == tree->parent() && other.local_rank == 0;
    });
    std::istringstream words(texts[static_cast<std::size_t>(agent->rank)]);
    std::string ignored, port, address;
    words >> ignored >> port;
    std::vector<std::string> addresses;
    while (words >> address) addresses.push_back(address + " " + port);
    tree->connect_to_parent(addresses, agent->host, token, deadline);
  }
  tree->accept_children(listener, token, all, deadline);
  return tree;
}

void AgentTree::connect_to_parent(const std::vector<std::string>& addresses, const std::string& host,
                                  const std::string& token, const Deadline& deadline) {
  std::string reasons = "it has no address";
  do {
    if (!addresses.empty()) reasons.clear();
    for (const std::string& text : addresses) {
      std::istringstream words(text);
      Endpoint endpoint;
      words >> endpoint.host >> endpoint.port;
      std::string reason;
      std::optional<Socket> socket = try_connect(endpoint, deadline, reason);
      if (!socket) {
        reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", endpoint.text(), reason);
        continue;
      }
      Link link{.node = parent(), .socket = std::move(*socket), .in = "", .out = ""};
      push(link, fmt::format("{} {}", token, node_));
      links_.push_back(std::move(link));
      return;
    }
    std::this_thread::sleep_for(
        std::min<Deadline::Clock::duration>(std::chrono::milliseconds(100), deadline.left()));
  } while (!deadline.passed());
  fail<PeerError>("the control plane cannot reach {} by TCP after {} s: {}", host, deadline.seconds(),
                  reasons);
}

void AgentTree::accept_children(const Socket& listener, const std::string& token,
                                const std::vector<RankInfo>& all, const Deadline& deadline) {
  struct Stranger {
    Link link;
    Deadline hello{kHelloSeconds};
  };
  std::vector<Stranger> strangers;
  std::vector<int> missing = children_;
  while (!missing.empty()) {
    for (Link& link : links_) flush(link);  // the hello message for the parent
    std::vector<pollfd> waiting = {{.fd = listener.descriptor(), .events = POLLIN, .revents = 0}};
    for (const Stranger& stranger : strangers)
      waiting.push_back({.fd = stranger.link.socket.descriptor(), .events = POLLIN, .revents = 0});
    ::poll(waiting.data(), waiting.size(), 50);
    while (std::optional<Socket> socket = accept_waiting(listener))
      strangers.push_back({.link = {.node = -1, .socket = std::move(*socket), .in = "", .out = ""}});
    std::erase_if(strangers, [&](Stranger& stranger) {
      char block[kMaxHelloBytes];
      const ssize_t now = recv(stranger.link.socket.descriptor(), block, sizeof block, 0);
      if (now < 0) return (errno != EAGAIN && errno != EINTR) || stranger.hello.passed();
      if (now == 0) return true;
      stranger.link.in.append(block, static_cast<std::size_t>(now));
      try {
        const std::optional<std::string> hello = take_message(stranger.link.in, kMaxHelloBytes);
        if (!hello) return stranger.link.in.size() > kMaxHelloBytes;
        std::string theirs;
        int node = -1;
        std::istringstream(*hello) >> theirs >> node;
        const auto expected = std::find(missing.begin(), missing.end(), node);
        if (!is_equal(theirs, token) || expected == missing.end()) return true;
        missing.erase(expected);
        stranger.link.node = node;
        links_.push_back(std::move(stranger.link));
      } catch (const DataError&) {  // not an agent
      }
      return true;
    });
    if (deadline.passed() && !missing.empty()) {
      std::vector<int> ranks;
      for (const RankInfo& other : all)
        if (other.local_rank == 0 && std::find(missing.begin(), missing.end(), other.node) != missing.end())
          ranks.push_back(other.rank);
      fail<PeerError>("the control plane waited {} s for a TCP connection of {}", deadline.seconds(),
                      format_ranks(ranks));
    }
  }
}

void AgentTree::push(Link& link, const std::string& text) {
  for (std::size_t i = 0; i < kSizeBytes; ++i)
    link.out += static_cast<char>(static_cast<unsigned char>(text.size() >> (8 * i)));
  link.out += text;
  flush(link);
}

void AgentTree::flush(Link& link) {
  while (!link.out.empty()) {
    const ssize_t now = send(link.socket.descriptor(), link.out.data(), link.out.size(), MSG_NOSIGNAL);
    if (now < 0) return;
    link.out.erase(0, static_cast<std::size_t>(now));
  }
}

bool AgentTree::receive(Link& link, std::vector<Message>& messages) {
  using Kind = Message::Kind;
  const auto end = [&](Kind kind) {
    messages.push_back({.node = link.node, .kind = kind, .text = ""});
    return false;
  };
  char block[16384];
  while (true) {
    const ssize_t now = recv(link.socket.descriptor(), block, sizeof block, 0);
    if (now < 0 && errno == EINTR) continue;
    if (now < 0 && errno == EAGAIN) return true;
    if (now <= 0) return end(Kind::lost);
    link.in.append(block, static_cast<std::size_t>(now));
    try {
      while (std::optional<std::string> text = take_message(link.in, kMaxMessageBytes)) {
        if (text->empty()) return end(Kind::left);
        messages.push_back({.node = link.node, .kind = Kind::text, .text = std::move(*text)});
      }
    } catch (const DataError&) {
      return end(Kind::lost);
    }
  }
}

void AgentTree::send_up(const std::string& text) {
  for (Link& link : links_)
    if (!is_root() && link.node == parent()) push(link, text);
}

void AgentTree::send_down(const std::string& text) {
  for (Link& link : links_)
    if (is_root() || link.node != parent()) push(link, text);
}

std::vector<AgentTree::Message> AgentTree::poll(std::chrono::milliseconds limit) {
  std::vector<pollfd> waiting;
  for (const Link& link : links_)
    waiting.push_back({.fd = link.socket.descriptor(),
                       .events = static_cast<short>(link.out.empty() ? POLLIN : POLLIN | POLLOUT),
                       .revents = 0});
  ::poll(waiting.data(), waiting.size(), static_cast<int>(limit.count()));
  std::vector<Message> messages;
  std::erase_if(links_, [&](Link& link) {
    flush(link);  // a failure shows in receive(), after the last messages
    return !receive(link, messages);
  });
  return messages;
}

void AgentTree::leave() {
  for (Link& link : links_) {
    push(link, "");
    shutdown(link.socket.descriptor(), SHUT_WR);
  }
  // Closing a socket with unread bytes would discard the message.
  const Deadline deadline(kLeaveSeconds);
  while (!links_.empty() && !deadline.passed()) poll(std::chrono::milliseconds(10));
}

}  // namespace convoy::dist
