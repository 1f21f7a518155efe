#include "convoy/comm/transport/message_transport.h"

#include <algorithm>

#include "convoy/comm/core/view_parts.h"
#include "convoy/comm/transport/transfer.h"

namespace convoy::dist {
namespace {

// Message size in bytes: large compared with the cost of a message, and small enough for a cache.
constexpr std::size_t kMessageBytes = std::size_t{1} << 20;

}  // namespace

template <class F>
void MessageTransport::for_each_peer(F&& f) const {
  for (int other = 0; other < size(); ++other)
    if (other != rank()) f(other);
}

void MessageTransport::enter(const Call& call) {
  std::vector<CollectiveSignature> by_rank(static_cast<std::size_t>(size()));
  by_rank[static_cast<std::size_t>(rank())] = call.collective;
  for_each_peer([&](int other) {
    links_->send(other, std::as_bytes(std::span(&call.collective, 1)));
    links_->receive(other, std::as_writable_bytes(std::span(&by_rank[static_cast<std::size_t>(other)], 1)));
  });
  links_->wait(call.deadline);
  verify_consistency(by_rank);
}

std::vector<SumPart> MessageTransport::receive_parts(const ConstView& local) {
  if (scratch_.size() < local.bytes() * static_cast<std::size_t>(size()))
    scratch_.resize(local.bytes() * static_cast<std::size_t>(size()));
  std::vector<SumPart> parts;
  for (int other = 0; other < size(); ++other) {
    const View place{scratch_.data() + static_cast<std::size_t>(other) * local.bytes(), local.shape,
                     local.dtype};
    if (other != rank()) links_.receive(other, place, kContribution);
    parts.push_back({other == rank() ? local : ConstView(place)});
  }
  return parts;
}

/// Pipelined: the reduce-scatter of one piece overlaps the all-gather of the previous piece. No rank sends
/// the sum of a piece before it has verified all contributions to it, so no rank completes a wrong sum.
void MessageTransport::all_reduce(const Call& call, View data) {
  enter(call);
  const std::int64_t piece_size = elements_in(kMessageBytes, data.dtype) * size();
  const std::int64_t pieces = (data.numel() + piece_size - 1) / piece_size;
  const auto shard = [&](std::int64_t number, int of) {
    return shard_of(piece_at(data, number * piece_size, piece_size), of, size());
  };
  std::uint64_t checksum_of_sum = 0;  // of this rank's shard of the previous piece
  for (std::int64_t number = 0; number <= pieces; ++number) {
    std::vector<SumPart> parts;
    if (number < pieces) {
      for_each_peer([&](int other) { links_.send(other, shard(number, other)); });
      parts = receive_parts(shard(number, rank()));
    }
    if (number > 0) {
      for_each_peer([&](int other) {
        links_.send(other, shard(number - 1, rank()), checksum_of_sum);
        links_.receive(other, shard(number - 1, other), kSum);
      });
    }
    links_.wait(call.deadline);
    if (number == pieces) return;
    Checksum of_sum;
    sum_in_order(parts, shard(number, rank()), &of_sum);
    checksum_of_sum = of_sum.value();
  }
}

void MessageTransport::reduce_scatter(const Call& call, ConstView in, View out) {
  enter(call);
  const std::int64_t piece_size = elements_in(kMessageBytes, in.dtype);
  for (std::int64_t begin = 0; begin < out.numel(); begin += piece_size) {
    const View sum = piece_at(out, begin, piece_size);
    const auto part_for = [&](int other) { return subview(in, out.numel() * other + begin, sum.numel()); };
    for_each_peer([&](int other) { links_.send(other, part_for(other)); });
    const std::vector<SumPart> parts = receive_parts(part_for(rank()));
    links_.wait(call.deadline);
    sum_in_order(parts, sum);
  }
}

void MessageTransport::broadcast(const Call& call, View data) {
  enter(call);
  const int root = call.collective.root;
  const std::int64_t piece_size = elements_in(kMessageBytes, data.dtype);
  for (std::int64_t begin = 0; begin < data.numel(); begin += piece_size) {
    const View piece = piece_at(data, begin, piece_size);
    if (rank() == root) {
      const std::uint64_t checksum = checksum_of(piece);
      for_each_peer([&](int other) { links_.send(other, piece, checksum); });
    } else {
      links_.receive(root, piece, kData);
    }
    links_.wait(call.deadline);
  }
}

void MessageTransport::all_gather(const Call& call, ConstView in, View out) {
  enter(call);
  copy_view(in, subview(out, in.numel() * rank(), in.numel()));
  const std::int64_t piece_size = elements_in(kMessageBytes, in.dtype);
  for (std::int64_t begin = 0; begin < in.numel(); begin += piece_size) {
    const ConstView piece = piece_at(in, begin, piece_size);
    const std::uint64_t checksum = checksum_of(piece);
    for_each_peer([&](int other) {
      links_.send(other, piece, checksum);
      links_.receive(other, subview(out, in.numel() * other + begin, piece.numel()), kData);
    });
    links_.wait(call.deadline);
  }
}

std::vector<std::string> MessageTransport::gather_object(const Call& call, const std::string& local) {
  enter(call);
  return gather_texts(*links_, local, call.deadline);
}

std::unique_ptr<Transport> MessageTransport::split(const Call& call, int color) {
  enter(call);
  std::vector<int> members;
  return std::make_unique<MessageTransport>(split_links(*links_, color, call.deadline, members));
}

void MessageTransport::finish(const Call& call) {
  enter(call);
  links_->leave(call.deadline);
}

}  // namespace convoy::dist
