#include "convoy/comm/transport/shm/shm_communicator.h"

#include <algorithm>
#include <cstring>

#include "convoy/comm/transport/cpu_communicator.h"
#include "convoy/comm/transport/shm/shared_segment.h"
#include "convoy/kernels/base/check.h"

namespace convoy::dist {
namespace {

/// A Transport between processes of one host. Every collective starts with a step in which each rank posts
/// its signature. After that step all buffers are free, and all ranks execute the same collective. The data
/// follows in chunks. README.md describes the protocol.
class ShmTransport final : public Transport {
 public:
  explicit ShmTransport(std::unique_ptr<SharedSegment> segment) : segment_(std::move(segment)) {}

  std::string name() const override { return "shm"; }
  int rank() const override { return segment_->rank(); }
  int size() const override { return segment_->size(); }

  /// Each rank sums its slice of each chunk. Its own contribution to that slice is never copied. Copying a
  /// chunk in overlaps the sums of the previous chunk: the rank executes the first step of the chunk before
  /// it waits for those sums.
  void all_reduce(const Call& call, View data) override {
    enter(call);
    const std::int64_t chunk_size = elements_in(segment_->slice_bytes(), data.dtype) * size();
    const std::int64_t chunks = (data.numel() + chunk_size - 1) / chunk_size;
    const auto chunk_of = [&](std::int64_t number) {
      return piece_at(data, number * chunk_size, chunk_size);
    };
    for (std::int64_t number = 0; number <= chunks; ++number) {
      if (number < chunks) {
        const View chunk = chunk_of(number);
        for_each_peer([&](int other) {
          segment_->store(slice_of(chunk, other), slice_of(in_segment(chunk, rank(), number), other), number,
                          other);
        });
        segment_->step();
      }
      if (number > 0) {
        segment_->wait(call.deadline, number < chunks ? 1 : 0);
        const View previous = chunk_of(number - 1);
        for_each_peer([&](int other) {
          const View slice = slice_of(previous, other);
          segment_->load(kSum, sum_in_segment(slice, other, number - 1), slice, other, number - 1, other);
        });
      }
      if (number < chunks) {
        segment_->wait(call.deadline);
        const View chunk = chunk_of(number);
        const View sum = slice_of(chunk, rank());
        Checksum of_sum;
        segment_->sum(
            sum, sum, number, rank(),
            [&](int other) { return slice_of(in_segment(chunk, other, number), rank()); }, &of_sum,
            sum_in_segment(sum, rank(), number));
        segment_->step();
      }
    }
  }

  void reduce_scatter(const Call& call, ConstView in, View out) override {
    enter(call);
    const std::int64_t slice_size = elements_in(segment_->slice_bytes(), in.dtype);
    for (std::int64_t number = 0; number * slice_size < out.numel(); ++number) {
      const std::int64_t begin = number * slice_size;
      const View sum = piece_at(out, begin, slice_size);
      const auto part_for = [&](int other) { return subview(in, out.numel() * other + begin, sum.numel()); };
      const auto place_for = [&](int from, int to) {
        return View{segment_->chunk(from, number) + static_cast<std::size_t>(to) * segment_->slice_bytes(),
                    sum.shape, sum.dtype};
      };
      for_each_peer(
          [&](int other) { segment_->store(part_for(other), place_for(rank(), other), number, other); });
      segment_->step();
      segment_->wait(call.deadline);
      segment_->sum(part_for(rank()), sum, number, rank(),
                    [&](int other) { return place_for(other, rank()); });
    }
  }

  void broadcast(const Call& call, View data) override {
    enter(call);
    const int root = call.collective.root;
    const std::int64_t chunk_size = elements_in(segment_->chunk_bytes(), data.dtype);
    for (std::int64_t number = 0; number * chunk_size < data.numel(); ++number) {
      const View chunk = piece_at(data, number * chunk_size, chunk_size);
      if (rank() == root) {
        // A rank that has reached the previous chunk has read the one before it.
        segment_->wait(call.deadline);
        segment_->store(chunk, in_segment(chunk, root, number), number, root);
        segment_->step();
      } else {
        segment_->step();
        segment_->wait_for(root, call.deadline);
        segment_->load(kData, in_segment(chunk, root, number), chunk, root, number, root);
      }
    }
  }

  void all_gather(const Call& call, ConstView in, View out) override {
    enter(call);
    exchange(call, in, out);
  }

  void barrier(const Call& call) override { enter(call); }

  std::vector<std::string> gather_object(const Call& call, const std::string& local) override {
    enter(call);
    std::vector<std::string> texts = exchange_texts(call, local);
    if (rank() != 0) texts.clear();
    return texts;
  }

  std::unique_ptr<Transport> split(const Call& call, int color) override {
    enter(call);
    const std::vector<std::string> colors = exchange_texts(call, std::to_string(color));
    std::vector<std::size_t> members;
    for (std::size_t other = 0; other < colors.size(); ++other)
      if (colors[other] == std::to_string(color)) members.push_back(other);
    const auto me = std::find(members.begin(), members.end(), static_cast<std::size_t>(rank()));
    const auto exchange_in_part = [&](const std::string& local) {
      const std::vector<std::string> all = exchange_texts(call, local);
      std::vector<std::string> of_members;
      for (const std::size_t member : members) of_members.push_back(all[member]);
      return of_members;
    };
    return std::make_unique<ShmTransport>(std::make_unique<SharedSegment>(
        static_cast<int>(me - members.begin()), static_cast<int>(members.size()), exchange_in_part,
        segment_->chunk_bytes()));
  }

  bool poll_peers() override { return segment_->poll_between_collectives(); }
  void finish(const Call& call) override { enter(call); }

  void abort(const std::string& reason) noexcept override { segment_->fail(reason); }

 private:
  void enter(const Call& call) {
    segment_->post(call.collective);
    segment_->wait(call.deadline);
    verify_consistency(segment_->posted());
  }

  /// All-gathers `in` [n] into `out` [n * size()]. Chunk numbers continue across calls: a buffer is free once
  /// all ranks have reached the next chunk.
  void exchange(const Call& call, ConstView in, View out) {
    const std::int64_t chunk_size = elements_in(segment_->chunk_bytes(), in.dtype);
    copy_view(in, subview(out, in.numel() * rank(), in.numel()));
    for (std::int64_t begin = 0; begin < in.numel(); begin += chunk_size) {
      const std::int64_t number = exchanged_++;
      const ConstView chunk = piece_at(in, begin, chunk_size);
      segment_->store(chunk, in_segment(chunk, rank(), number), number, rank());
      segment_->step();
      segment_->wait(call.deadline);
      for_each_peer([&](int other) {
        const View place = subview(out, in.numel() * other + begin, chunk.numel());
        segment_->load(kData, in_segment(chunk, other, number), place, other, number, other);
      });
    }
  }

  std::vector<std::string> exchange_texts(const Call& call, const std::string& local) {
    const auto ranks = static_cast<std::size_t>(size());
    auto local_bytes = static_cast<std::int32_t>(local.size());
    std::vector<std::int32_t> bytes(ranks);
    exchange(call, ConstView(&local_bytes, {1}, DType::i32), View{bytes.data(), {size()}, DType::i32});
    const std::int32_t max_bytes = *std::max_element(bytes.begin(), bytes.end());
    std::string padded = local;
    padded.resize(static_cast<std::size_t>(max_bytes));
    std::string all(padded.size() * ranks, '\0');
    exchange(call, ConstView(padded.data(), {max_bytes}, DType::u8),
             View{all.data(), {static_cast<std::int64_t>(all.size())}, DType::u8});
    std::vector<std::string> texts;
    for (std::size_t other = 0; other < ranks; ++other)
      texts.push_back(all.substr(other * padded.size(), static_cast<std::size_t>(bytes[other])));
    return texts;
  }

  /// Returns the slice of `chunk` that `rank` sums, in whole cache lines.
  View slice_of(const View& chunk, int rank) const {
    const std::int64_t line = elements_in(64, chunk.dtype);
    const std::int64_t even = (chunk.numel() + size() - 1) / size();
    const std::int64_t slice = (even + line - 1) / line * line;
    const std::int64_t begin = std::min(slice * rank, chunk.numel());
    return piece_at(chunk, begin, slice);
  }

  View in_segment(const ConstView& chunk, int of, std::int64_t number) const {
    return {segment_->chunk(of, number), chunk.shape, chunk.dtype};
  }
  View sum_in_segment(const ConstView& slice, int of, std::int64_t number) const {
    return {segment_->slice(of, number), slice.shape, slice.dtype};
  }

  template <class F>
  void for_each_peer(F&& f) const {
    for (int other = 0; other < size(); ++other)
      if (other != rank()) f(other);
  }

  std::unique_ptr<SharedSegment> segment_;
  std::int64_t exchanged_ = 0;  // number of chunks of exchange()
};

}  // namespace

std::unique_ptr<Communicator> make_shm_communicator(int rank, int size, const TextExchange& exchange,
                                                    const ShmOptions& options) {
  check(rank >= 0 && rank < size, "shared memory: found rank {}, expected a rank below {}", rank, size);
  return std::make_unique<CpuCommunicator>(std::make_unique<ShmTransport>(std::make_unique<SharedSegment>(
                                               rank, size, exchange, options.chunk_bytes)),
                                           options.comm);
}

}  // namespace convoy::dist
