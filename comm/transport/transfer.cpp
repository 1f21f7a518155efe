#include "convoy/comm/transport/transfer.h"

#include <vector>

#include "convoy/comm/core/collective.h"
#include "convoy/comm/transport/cpu_sum.h"
#include "convoy/kernels/base/check.h"

namespace convoy::dist {

void verify_transfer(const char* what, int from, int to, std::uint64_t sent, std::uint64_t received) {
  if (sent == received) return;
  fail<CorruptionError>(
      "rank {} sent {} with the checksum {:016x} to rank {}, which received {:016x}: memory, the network or a "
      "processor has changed the bytes",
      from, what, sent, to, received);
}

void sum_verified(std::span<const SentPart> parts, int to, const View& sum, Checksum* of_sum,
                  const View& copy) {
  std::vector<Checksum> checksums(parts.size());
  std::vector<SumPart> summands;
  for (std::size_t i = 0; i < parts.size(); ++i)
    summands.push_back({parts[i].view, parts[i].sent ? &checksums[i] : nullptr});
  sum_in_order(summands, sum, of_sum, copy);
  for (std::size_t i = 0; i < parts.size(); ++i)
    if (parts[i].sent)
      verify_transfer(kContribution, parts[i].from, to, *parts[i].sent, checksums[i].value());
}

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

void CheckedLinks::receive_addend(int from, const View& sum) {
  if (used_ == addends_.size()) addends_.emplace_back();
  std::vector<char>& memory = addends_[used_++];
  if (memory.size() < sum.bytes()) memory.resize(sum.bytes());
  receive(from, View{memory.data(), sum.shape, sum.dtype}, kPartialSum);
  if (sum.bytes() > 0) incoming_.back().sum = sum;
}

void CheckedLinks::wait(const Deadline& deadline) {
  links_->wait(deadline);
  outgoing_.clear();
  for (const Incoming& incoming : incoming_) {
    verify_transfer(incoming.what, incoming.from, links_->rank(), incoming.checksum,
                    checksum_of(incoming.view));
    const SumPart parts[] = {{incoming.sum}, {incoming.view}};
    if (incoming.sum.data != nullptr) sum_in_order(parts, incoming.sum);
  }
  incoming_.clear();
  used_ = 0;
}

}  // namespace convoy::dist
