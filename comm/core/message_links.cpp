#include "convoy/comm/core/message_links.h"

#include <cstdint>
#include <cstring>

#include "convoy/comm/core/sparse_graph.h"

namespace convoy::dist {
namespace {

constexpr std::size_t kLengthBytes = sizeof(std::uint64_t);

/// Sends a text after its length.
void send_text(MessageLinks& links, std::span<const int> to, const std::string& text,
               const Deadline& deadline) {
  const std::uint64_t length = text.size();
  for (const int other : to) {
    links.send(other, std::as_bytes(std::span(&length, 1)));
    if (length > 0) links.send(other, std::as_bytes(std::span(text)));
  }
  links.wait(deadline);
}

std::string receive_text(MessageLinks& links, int from, const Deadline& deadline) {
  std::uint64_t length = 0;
  links.receive(from, std::as_writable_bytes(std::span(&length, 1)));
  links.wait(deadline);
  std::string text(length, '\0');
  if (length > 0) links.receive(from, std::as_writable_bytes(std::span(text)));
  links.wait(deadline);
  return text;
}

/// Returns the texts of all ranks, in rank order and each after its length, on rank 0.
std::string gather_packed(MessageLinks& links, const BinomialTree& tree, const std::string& local,
                          const Deadline& deadline) {
  const std::uint64_t length = local.size();
  std::string packed(reinterpret_cast<const char*>(&length), kLengthBytes);
  packed += local;
  for (const int child : tree.children) packed += receive_text(links, child, deadline);
  if (tree.parent >= 0) send_text(links, {&tree.parent, 1}, packed, deadline);
  return packed;
}

std::vector<std::string> unpack(const std::string& packed) {
  std::vector<std::string> texts;
  for (std::size_t at = 0; at < packed.size();) {
    std::uint64_t length = 0;
    std::memcpy(&length, packed.data() + at, kLengthBytes);
    texts.push_back(packed.substr(at + kLengthBytes, length));
    at += kLengthBytes + length;
  }
  return texts;
}

}  // namespace

std::vector<std::string> exchange_texts(MessageLinks& links, const std::string& local,
                                        const Deadline& deadline) {
  const BinomialTree tree(links.rank(), links.size());
  std::string packed = gather_packed(links, tree, local, deadline);
  if (tree.parent >= 0) packed = receive_text(links, tree.parent, deadline);
  send_text(links, tree.children, packed, deadline);
  return unpack(packed);
}

std::vector<std::string> gather_texts(MessageLinks& links, const std::string& local,
                                      const Deadline& deadline) {
  const BinomialTree tree(links.rank(), links.size());
  const std::string packed = gather_packed(links, tree, local, deadline);
  return tree.parent >= 0 ? std::vector<std::string>() : unpack(packed);
}

std::unique_ptr<MessageLinks> split_links(MessageLinks& links, int color, const Deadline& deadline,
                                          std::vector<int>& members) {
  const std::string prefix = std::to_string(color) + " ";
  const std::vector<std::string> all = exchange_texts(links, prefix + links.new_group_name(), deadline);
  members.clear();
  for (int other = 0; other < links.size(); ++other)
    if (all[static_cast<std::size_t>(other)].starts_with(prefix)) members.push_back(other);
  const std::string& of_first = all[static_cast<std::size_t>(members.front())];
  return links.make_group(members, of_first.substr(prefix.size()), deadline);
}

}  // namespace convoy::dist
