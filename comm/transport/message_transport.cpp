#include "convoy/comm/transport/message_transport.h"

#include <utility>

#include "convoy/comm/core/view_parts.h"
#include "convoy/comm/transport/transfer.h"

namespace convoy::dist {
namespace {

// Message size in bytes: large compared with the cost of a message, and small enough for a cache.
constexpr std::size_t kMessageBytes = std::size_t{1} << 20;
// The data of all ranks of a step along a sparse graph. The order of additions of a ring depends on it.
constexpr std::size_t kStepBytes = std::size_t{8} << 20;

}  // namespace

MessageTransport::MessageTransport(std::unique_ptr<MessageLinks> links, const AllReduceOptions& options)
    : links_(std::move(links)), options_(options), group_{links_, {}, links_->rank()} {
  for (int other = 0; other < size(); ++other) group_.ranks.push_back(other);
}

template <class F>
void MessageTransport::for_each_peer(F&& f) const {
  for (int other = 0; other < size(); ++other)
    if (other != rank()) f(other);
}

void MessageTransport::enter(const CollectiveSignature& collective, const Deadline& deadline) {
  links_->set_round(collective.number + 1);
  if (options_.is_sparse(size())) {
    if (!agree_along_tree(group_, collective, deadline)) fail_as_inconsistent(*links_, collective, deadline);
    return;
  }
  std::vector<CollectiveSignature> by_rank(static_cast<std::size_t>(size()));
  by_rank[static_cast<std::size_t>(rank())] = collective;
  for_each_peer([&](int other) {
    links_->send(other, std::as_bytes(std::span(&collective, 1)));
    links_->receive(other, std::as_writable_bytes(std::span(&by_rank[static_cast<std::size_t>(other)], 1)));
  });
  links_->wait(deadline);
  verify_consistency(by_rank);
}

AllReduce MessageTransport::enter_sum(const Call& call, std::size_t bytes) {
  const AllReduce algorithm = options_.algorithm_for(size(), bytes);
  CollectiveSignature collective = call.collective;
  collective.root = static_cast<std::int32_t>(algorithm);
  enter(collective, call.deadline);
  return algorithm;
}

View MessageTransport::work(std::int64_t count, DType dtype) {
  const std::size_t bytes = static_cast<std::size_t>(count) * size_of(dtype);
  if (work_.size() < bytes) work_.resize(bytes);
  return {work_.data(), {count}, dtype};
}

std::vector<SumPart> MessageTransport::receive_parts(const ConstView& local) {
  const View places = work(local.numel() * size(), local.dtype);
  std::vector<SumPart> parts;
  for (int other = 0; other < size(); ++other) {
    const View place = shard_of(places, other, size());
    if (other != rank()) links_.receive(other, place, kContribution);
    parts.push_back({other == rank() ? local : ConstView(place)});
  }
  return parts;
}

void MessageTransport::all_reduce(const Call& call, View data) {
  const AllReduce algorithm = enter_sum(call, data.bytes());
  if (algorithm == AllReduce::direct) return all_reduce_directly(call, data);
  const DType wide = sum_type(data.dtype);
  const std::int64_t step = elements_in(kStepBytes, wide);
  for (std::int64_t begin = 0; begin < data.numel(); begin += step) {
    const View piece = piece_at(data, begin, step);
    const View sum = wide == data.dtype ? piece : work(piece.numel(), wide);
    if (wide != data.dtype) convert(piece, sum);
    all_reduce_by(algorithm, group_, sum, piece, call.deadline);
  }
}

void MessageTransport::reduce_scatter(const Call& call, ConstView in, View out) {
  const AllReduce algorithm = enter_sum(call, in.bytes());
  if (algorithm == AllReduce::direct) return reduce_scatter_directly(call, in, out);
  const DType wide = sum_type(in.dtype);
  const std::int64_t step = elements_in(kStepBytes, wide) / size() + 1;
  for (std::int64_t begin = 0; begin < out.numel(); begin += step) {
    const View piece = piece_at(out, begin, step);
    const View sum = work(piece.numel() * size(), wide);
    for (int other = 0; other < size(); ++other)
      convert(subview(in, out.numel() * other + begin, piece.numel()), shard_of(sum, other, size()));
    reduce_scatter_by(algorithm, group_, sum, call.deadline);
    convert(shard_of(sum, rank(), size()), piece);
  }
}

void MessageTransport::broadcast(const Call& call, View data) {
  enter(call.collective, call.deadline);
  const std::int64_t step = elements_in(kMessageBytes, data.dtype);
  for (std::int64_t begin = 0; begin < data.numel(); begin += step)
    tree_broadcast(group_, piece_at(data, begin, step), call.collective.root, kData, call.deadline);
}

void MessageTransport::all_gather(const Call& call, ConstView in, View out) {
  const AllReduce algorithm = enter_sum(call, out.bytes());
  const std::int64_t step = elements_in(kStepBytes, in.dtype) / size() + 1;
  for (std::int64_t begin = 0; begin < in.numel(); begin += step) {
    const ConstView piece = piece_at(in, begin, step);
    const View all = work(piece.numel() * size(), in.dtype);
    copy_view(piece, shard_of(all, rank(), size()));
    all_gather_by(algorithm, group_, all, call.deadline);
    for (int other = 0; other < size(); ++other)
      copy_view(shard_of(all, other, size()), subview(out, in.numel() * other + begin, piece.numel()));
  }
}

/// Pipelined: the reduce-scatter of one piece overlaps the all-gather of the previous piece. No rank sends
/// the sum of a piece before it has verified all contributions to it, so no rank completes a wrong sum.
void MessageTransport::all_reduce_directly(const Call& call, View data) {
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

void MessageTransport::reduce_scatter_directly(const Call& call, ConstView in, View out) {
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

std::vector<std::string> MessageTransport::gather_object(const Call& call, const std::string& local) {
  enter(call.collective, call.deadline);
  return gather_texts(*links_, local, call.deadline);
}

std::unique_ptr<Transport> MessageTransport::split(const Call& call, int color) {
  enter(call.collective, call.deadline);
  std::vector<int> members;
  return std::make_unique<MessageTransport>(split_links(*links_, color, call.deadline, members), options_);
}

void MessageTransport::finish(const Call& call) {
  enter(call.collective, call.deadline);
  links_->leave(call.deadline);
}

}  // namespace convoy::dist
