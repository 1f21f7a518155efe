#include "comm/shm_communicator.h"

#include <algorithm>
#include <cstring>

#include "comm/cpu_communicator.h"
#include "comm/cpu_sum.h"
#include "comm/shm_window.h"
#include "comm/view_parts.h"
#include "kernels/runtime/check.h"

namespace convoy {
namespace {

/// Every collective begins with a step in which all ranks say what they are about to do: then all buffers are
/// free, and nothing is read that belongs to something else. The data follows in chunks.
class ShmTransport final : public Transport {
 public:
  explicit ShmTransport(std::unique_ptr<ShmWindow> window) : window_(std::move(window)) {}

  std::string name() const override { return "shm"; }
  int rank() const override { return window_->rank(); }
  int size() const override { return window_->size(); }

  /// Each rank sums its slice of the chunk; its own part of that never leaves its memory. While a chunk is
  /// summed the next is copied in: its first step comes before the wait for the sums of the last.
  void all_reduce(const Call& call, View data) override {
    enter(call);
    const std::int64_t most = elements(window_->slice_bytes(), data.dtype) * size();
    const std::int64_t chunks = (data.numel() + most - 1) / most;
    const auto chunk_of = [&](std::int64_t number) {
      return part_of(data, number * most, std::min(most, data.numel() - number * most));
    };
    for (std::int64_t number = 0; number <= chunks; ++number) {
      if (number < chunks) {
        const View chunk = chunk_of(number);
        for_each_other([&](int other) {
          copy_view(slice_of(chunk, other), slice_of(in_window(chunk, rank(), number), other));
        });
        window_->step();
      }
      if (number > 0) {
        window_->wait(call.deadline, number < chunks ? 1 : 0);
        const View last = chunk_of(number - 1);
        for_each_other([&](int other) {
          const View slice = slice_of(last, other);
          copy_view(sum_in_window(slice, other, number - 1), slice);
        });
      }
      if (number < chunks) {
        window_->wait(call.deadline);
        const View chunk = chunk_of(number);
        const View sum = slice_of(chunk, rank());
        std::vector<ConstView> parts;
        for (int other = 0; other < size(); ++other)
          parts.push_back(other == rank() ? sum : slice_of(in_window(chunk, other, number), rank()));
        sum_in_order(call.stream, parts, sum);
        copy_view(sum, sum_in_window(sum, rank(), number));
        window_->step();
      }
    }
  }

  void reduce_scatter(const Call& call, ConstView in, View out) override {
    enter(call);
    const std::int64_t most = elements(window_->slice_bytes(), in.dtype);
    for (std::int64_t number = 0; number * most < out.numel(); ++number) {
      const View sum = part_of(out, number * most, std::min(most, out.numel() - number * most));
      const auto part_for = [&](int other) {
        return part_of(in, out.numel() * other + number * most, sum.numel());
      };
      const auto place_for = [&](int from, int to) {
        return View{window_->chunk(from, number) + static_cast<std::size_t>(to) * window_->slice_bytes(),
                    sum.shape, sum.dtype};
      };
      for_each_other([&](int other) { copy_view(part_for(other), place_for(rank(), other)); });
      window_->step();
      window_->wait(call.deadline);
      std::vector<ConstView> parts;
      for (int other = 0; other < size(); ++other)
        parts.push_back(other == rank() ? part_for(rank()) : ConstView(place_for(other, rank())));
      sum_in_order(call.stream, parts, sum);
    }
  }

  void broadcast(const Call& call, View data) override {
    enter(call);
    const int root = call.collective.root;
    const std::int64_t most = elements(window_->chunk_bytes(), data.dtype);
    for (std::int64_t number = 0; number * most < data.numel(); ++number) {
      const View chunk = part_of(data, number * most, std::min(most, data.numel() - number * most));
      if (rank() == root) {
        window_->wait(call.deadline);  // a rank that has come to the last chunk has read the one before
        copy_view(chunk, in_window(chunk, root, number));
        window_->step();
      } else {
        window_->step();
        window_->wait_for(root, call.deadline);
        copy_view(in_window(chunk, root, number), chunk);
      }
    }
  }

  void all_gather(const Call& call, ConstView in, View out) override {
    enter(call);
    exchange(call, in, out);
  }

  void barrier(const Call& call) override { enter(call); }

  std::vector<std::string> gather(const Call& call, const std::string& mine) override {
    enter(call);
    std::vector<std::string> texts = exchange_texts(call, mine);
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
    const auto exchange_in_part = [&](const std::string& mine) {
      const std::vector<std::string> all = exchange_texts(call, mine);
      std::vector<std::string> of_members;
      for (const std::size_t member : members) of_members.push_back(all[member]);
      return of_members;
    };
    return std::make_unique<ShmTransport>(
        std::make_unique<ShmWindow>(static_cast<int>(me - members.begin()), static_cast<int>(members.size()),
                                    exchange_in_part, window_->chunk_bytes()));
  }

  void finish(const Call& call) override { enter(call); }

  void abort(const std::string& reason) noexcept override { window_->fail(reason); }

 private:
  void enter(const Call& call) {
    window_->posted(rank(), entered_) = call.collective;
    window_->step();
    window_->wait(call.deadline);
    std::vector<Collective> by_rank;
    for (int other = 0; other < size(); ++other) by_rank.push_back(window_->posted(other, entered_));
    check_same(by_rank);
    ++entered_;
  }

  /// in: [n], out: [n size]. One may follow another: their chunks are numbered on, since a buffer is free
  /// once all have come to the chunk after its own.
  void exchange(const Call& call, ConstView in, View out) {
    const std::int64_t most = elements(window_->chunk_bytes(), in.dtype);
    copy_view(in, part_of(out, in.numel() * rank(), in.numel()));
    for (std::int64_t begin = 0; begin < in.numel(); begin += most) {
      const std::int64_t number = exchanged_++;
      const ConstView chunk = part_of(in, begin, std::min(most, in.numel() - begin));
      copy_view(chunk, in_window(chunk, rank(), number));
      window_->step();
      window_->wait(call.deadline);
      for_each_other([&](int other) {
        copy_view(in_window(chunk, other, number), part_of(out, in.numel() * other + begin, chunk.numel()));
      });
    }
  }

  std::vector<std::string> exchange_texts(const Call& call, const std::string& mine) {
    const auto ranks = static_cast<std::size_t>(size());
    auto bytes_of_mine = static_cast<std::int32_t>(mine.size());
    std::vector<std::int32_t> bytes(ranks);
    exchange(call, ConstView(&bytes_of_mine, {1}, DType::i32), View{bytes.data(), {size()}, DType::i32});
    const std::int32_t most = *std::max_element(bytes.begin(), bytes.end());
    std::string padded = mine;
    padded.resize(static_cast<std::size_t>(most));
    std::string all(padded.size() * ranks, '\0');
    exchange(call, ConstView(padded.data(), {most}, DType::u8),
             View{all.data(), {static_cast<std::int64_t>(all.size())}, DType::u8});
    std::vector<std::string> texts;
    for (std::size_t other = 0; other < ranks; ++other)
      texts.push_back(all.substr(other * padded.size(), static_cast<std::size_t>(bytes[other])));
    return texts;
  }

  static std::int64_t elements(std::size_t bytes, DType dtype) {
    return static_cast<std::int64_t>(bytes / size_of(dtype));
  }

  /// The part of a chunk that a rank sums, in whole cache lines.
  View slice_of(const View& chunk, int rank) const {
    const std::int64_t line = elements(64, chunk.dtype);
    const std::int64_t even = (chunk.numel() + size() - 1) / size();
    const std::int64_t share = (even + line - 1) / line * line;
    const std::int64_t begin = std::min(share * rank, chunk.numel());
    return part_of(chunk, begin, std::min(share, chunk.numel() - begin));
  }

  View in_window(const ConstView& chunk, int of, std::int64_t number) const {
    return {window_->chunk(of, number), chunk.shape, chunk.dtype};
  }
  View sum_in_window(const ConstView& slice, int of, std::int64_t number) const {
    return {window_->slice(of, number), slice.shape, slice.dtype};
  }

  template <class F>
  void for_each_other(F&& f) const {
    for (int other = 0; other < size(); ++other)
      if (other != rank()) f(other);
  }

  std::unique_ptr<ShmWindow> window_;
  std::uint64_t entered_ = 0;   // collectives
  std::int64_t exchanged_ = 0;  // chunks
};

}  // namespace

std::unique_ptr<Communicator> make_shm_communicator(int rank, int size, const TextExchange& exchange,
                                                    const ShmOptions& options) {
  check(rank >= 0 && rank < size, "no rank {} among {}", rank, size);
  return std::make_unique<CpuCommunicator>(
      std::make_unique<ShmTransport>(std::make_unique<ShmWindow>(rank, size, exchange, options.chunk_bytes)),
      options.comm);
}

}  // namespace convoy
