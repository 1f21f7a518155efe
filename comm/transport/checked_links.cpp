#include "convoy/comm/transport/checked_links.h"

#include "convoy/comm/transport/transfer.h"

namespace convoy::dist {

void CheckedLinks::send(int to, const ConstView& view) { send(to, view, checksum_of(view)); }

void CheckedLinks::send(int to, const ConstView& view, std::uint64_t checksum) {
  if (view.bytes() == 0) return;
  links_->send(to, {view.as<std::byte>(), view.bytes()});
  links_->send(to, std::as_bytes(std::span(&outgoing_.emplace_back(checksum), 1)));
}

void CheckedLinks::receive(int from, const View& view, const char* what) {
  if (view.bytes() == 0) return;
  Incoming& incoming = incoming_.emplace_back(Incoming{.from = from, .view = view, .what = what});
  links_->receive(from, {view.as<std::byte>(), view.bytes()});
  links_->receive(from, std::as_writable_bytes(std::span(&incoming.checksum, 1)));
}

void CheckedLinks::wait(const Deadline& deadline) {
  links_->wait(deadline);
  outgoing_.clear();
  for (const Incoming& incoming : incoming_)
    verify_transfer(incoming.what, incoming.from, links_->rank(), incoming.checksum,
                    checksum_of(incoming.view));
  incoming_.clear();
}

}  // namespace convoy::dist
