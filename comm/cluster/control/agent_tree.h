// The connections between the agents of the hosts of a job: a tree.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "convoy/comm/bootstrap/rendezvous.h"
#include "convoy/comm/cluster/net/socket.h"
#include "convoy/comm/core/deadline.h"

namespace convoy::dist {

/// TCP connections of this host's agent to its parent and to its children. The agent of the first host is the
/// root; each agent has up to kFanOut children, so that 16,000 hosts are four levels. Messages are texts.
/// Not thread-safe.
class AgentTree {
 public:
  static constexpr int kFanOut = 32;
  static constexpr std::size_t kMaxMessageBytes = std::size_t{64} << 20;

  /// A message, or the end of a connection.
  struct Message {
    enum class Kind : std::uint8_t {
      text,  // sent by send_up() or send_down()
      left,  // the agent has called leave(); the connection is closed
      lost   // the connection has ended without that
    };
    int node = 0;  // the host that has sent it
    Kind kind = Kind::text;
    std::string text;
  };

  /// Connects the first ranks of all hosts, which prove that they belong to the job (PeerConnector).
  /// Collective over the job; returns null on other ranks, and on all ranks of a job on one host. Throws
  /// PeerError if an agent is not reached before the deadline.
  static std::unique_ptr<AgentTree> connect(Rendezvous& rendezvous, const Deadline& deadline);

  bool is_root() const { return node_ == 0; }
  /// Returns the host whose agent is the parent of this one, unless this is the root.
  int parent() const { return (node_ - 1) / kFanOut; }
  /// Returns the hosts whose agents are the children of this one.
  const std::vector<int>& children() const { return children_; }
  /// Sends a text, which is not empty, to the parent. Does nothing at the root. Does not block.
  void send_up(const std::string& text);
  /// Returns whether the parent has not taken the texts so far: later ones should wait.
  bool is_parent_blocked() const;
  /// Sends a text to all children, except to one that has not taken those before for a while. Does not block.
  void send_down(const std::string& text);
  /// Blocks until something has arrived, for `limit` at most, and returns it. Also sends what send_up() and
  /// send_down() could not send at once.
  std::vector<Message> poll(std::chrono::milliseconds limit);
  /// Tells all connected agents that this one leaves in order. Blocks until they have closed the connections,
  /// for a second at most.
  void leave();

 private:
  struct Link {
    int node = 0;
    Socket socket;
    std::string in, out;
  };

  explicit AgentTree(int node) : node_(node) {}
  static void push(Link& link, const std::string& text);
  /// Sends what the socket takes.
  static void flush(Link& link);
  /// Appends what has arrived to `messages`. Returns false if the connection has ended.
  static bool receive(Link& link, std::vector<Message>& messages);

  int node_;
  std::vector<int> children_;
  std::vector<Link> links_;
};

}  // namespace convoy::dist
