#include "convoy/comm/cluster/control/agent_tree.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <map>
#include <utility>

#include "convoy/comm/cluster/net/message.h"
#include "convoy/comm/cluster/net/peer_connector.h"
#include "convoy/kernels/base/check.h"

namespace convoy::dist {
namespace {

constexpr double kLeaveSeconds = 1;                       // for the other agents to close their connections
constexpr std::size_t kMaxUnsent = std::size_t{1} << 20;  // bytes to a child that does not read

}  // namespace

std::unique_ptr<AgentTree> AgentTree::connect(Rendezvous& rendezvous, const Deadline& deadline) {
  const RankInfo& info = rendezvous.info();
  if (info.nodes == 1) return nullptr;
  std::map<int, int> agents;  // the first rank of each host
  for (const RankInfo& other : rendezvous.all())
    if (other.local_rank == 0) agents[other.node] = other.rank;
  const bool is_agent = info.local_rank == 0;
  PeerConnector connector(rendezvous, is_agent);
  if (!is_agent) return nullptr;
  std::unique_ptr<AgentTree> tree(new AgentTree(info.node));
  std::vector<int> up, down;
  if (!tree->is_root()) up.push_back(agents[tree->parent()]);
  for (int child = kFanOut * info.node + 1; child <= kFanOut * (info.node + 1) && child < info.nodes;
       ++child) {
    tree->children_.push_back(child);
    down.push_back(agents[child]);
  }
  try {
    for (auto& [rank, connection] : connector.connect("control", up, down, deadline))
      tree->links_.push_back({.node = rendezvous.all()[static_cast<std::size_t>(rank)].node,
                              .socket = std::move(connection.socket),
                              .in = std::move(connection.received),
                              .out = ""});
  } catch (const PeerError& error) {
    fail<PeerError>("control plane: {}", error.what());
  }
  return tree;
}

void AgentTree::push(Link& link, const std::string& text) {
  append_message(link.out, text);
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
  while (true) {
    try {
      while (std::optional<std::string> text = take_message(link.in, kMaxMessageBytes)) {
        if (text->empty()) return end(Kind::left);
        messages.push_back({.node = link.node, .kind = Kind::text, .text = std::move(*text)});
      }
    } catch (const DataError&) {
      return end(Kind::lost);
    }
    const std::size_t before = link.in.size();
    if (!receive_waiting(link.socket, link.in)) return end(Kind::lost);
    if (link.in.size() == before) return true;
  }
}

void AgentTree::send_up(const std::string& text) {
  for (Link& link : links_)
    if (!is_root() && link.node == parent()) push(link, text);
}

bool AgentTree::is_parent_blocked() const {
  return std::any_of(links_.begin(), links_.end(), [&](const Link& link) {
    return !is_root() && link.node == parent() && !link.out.empty();
  });
}

void AgentTree::send_down(const std::string& text) {
  for (Link& link : links_)
    if ((is_root() || link.node != parent()) && link.out.size() < kMaxUnsent) push(link, text);
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
