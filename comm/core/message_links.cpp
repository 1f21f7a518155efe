#include "convoy/comm/core/message_links.h"

#include <cstdint>

namespace convoy::dist {
namespace {

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

void receive_text(MessageLinks& links, int from, std::string& text) {
  if (!text.empty()) links.receive(from, std::as_writable_bytes(std::span(text)));
}

void send_text(MessageLinks& links, int to, const std::string& text) {
  if (!text.empty()) links.send(to, std::as_bytes(std::span(text)));
}

/// Sends `local` to the ranks in `to` and receives the strings of the ranks in `from`; lengths go first.
std::vector<std::string> move_texts(MessageLinks& links, const std::string& local, std::span<const int> from,
                                    std::span<const int> to, const Deadline& deadline) {
  const auto ranks = static_cast<std::size_t>(links.size());
  const std::uint64_t length = local.size();
  std::vector<std::uint64_t> lengths(ranks);
  for (const int other : to) links.send(other, bytes_of(length));
  for (const int other : from)
    links.receive(other, std::as_writable_bytes(std::span(&lengths[static_cast<std::size_t>(other)], 1)));
  links.wait(deadline);
  std::vector<std::string> texts(ranks);
  texts[static_cast<std::size_t>(links.rank())] = local;
  for (const int other : to) send_text(links, other, local);
  for (const int other : from) {
    std::string& text = texts[static_cast<std::size_t>(other)];
    text.resize(lengths[static_cast<std::size_t>(other)]);
    receive_text(links, other, text);
  }
  links.wait(deadline);
  return texts;
}

std::vector<int> others_of(const MessageLinks& links) {
  std::vector<int> others;
  for (int rank = 0; rank < links.size(); ++rank)
    if (rank != links.rank()) others.push_back(rank);
  return others;
}

}  // namespace

std::vector<std::string> exchange_texts(MessageLinks& links, const std::string& local,
                                        const Deadline& deadline) {
  const std::vector<int> others = others_of(links);
  return move_texts(links, local, others, others, deadline);
}

std::vector<std::string> gather_texts(MessageLinks& links, const std::string& local,
                                      const Deadline& deadline) {
  if (links.rank() == 0) return move_texts(links, local, others_of(links), {}, deadline);
  const int first = 0;
  move_texts(links, local, {}, {&first, 1}, deadline);
  return {};
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
