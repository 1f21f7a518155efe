#include "convoy/comm/core/communicator.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "convoy/kernels/base/check.h"

namespace convoy::dist {
namespace {

void check_summable(const char* op, DType dtype) {
  check(dtype != DType::u8, "{}: found u8, expected f64, f32, f16, bf16 or i32", op);
}

void check_parts(const char* op, ConstView whole, ConstView part, int ranks) {
  check(whole.dtype == part.dtype, "{}: input and output must have the same type, found {} and {}", op,
        to_string(whole.dtype), to_string(part.dtype));
  check(whole.numel() == part.numel() * ranks, "{}: found {} elements, expected {} for each of {} ranks", op,
        whole.numel(), part.numel(), ranks);
}

}  // namespace

CollectiveSignature Communicator::next(CollectiveOp op, DType dtype, std::int64_t count, int root) {
  check(!finished_, "the communicator has finished: no collective can be launched after finish()");
  captured_ = is_capturing() ? captured_ + 1 : 0;
  const std::uint64_t number = captured_ > 0 ? sequence_number_ + captured_ - 1 : sequence_number_++;
  constexpr int kMaxBucket = std::numeric_limits<std::int16_t>::max();
  const CollectiveSignature collective{
      .number = number,
      .op = op,
      .dtype = dtype,
      .bucket = static_cast<std::int16_t>(std::min(std::exchange(bucket_, -1), kMaxBucket)),
      .root = root,
      .count = count};
  if (monitor_ && captured_ == 0) monitor_->launched(collective);
  return collective;
}

void Communicator::start(const CollectiveSignature& collective, ConstView in, View out, Event* done) {
  launch(collective, in, out);
  if (done != nullptr) done->record(stream());
  after_launch(collective);
}

void Communicator::all_reduce(View data, Event* done) {
  check_summable("all-reduce", data.dtype);
  start(next(CollectiveOp::all_reduce, data.dtype, data.numel()), data, data, done);
}

void Communicator::reduce_scatter(ConstView in, View out) {
  check_summable("reduce-scatter", in.dtype);
  check_parts("reduce-scatter", in, out, size_);
  start(next(CollectiveOp::reduce_scatter, in.dtype, in.numel()), in, out);
}

void Communicator::broadcast(View data, int root) {
  check(root >= 0 && root < size_, "broadcast: found root {}, expected a rank below {}", root, size_);
  start(next(CollectiveOp::broadcast, data.dtype, data.numel(), root), data, data);
}

void Communicator::all_gather(ConstView in, View out) {
  check_parts("all-gather", out, in, size_);
  start(next(CollectiveOp::all_gather, in.dtype, in.numel()), in, out);
}

void Communicator::barrier() { run_barrier(next(CollectiveOp::barrier)); }

std::vector<std::string> Communicator::gather_object(const std::string& local) {
  return run_gather_object(next(CollectiveOp::gather), local);
}

std::unique_ptr<Communicator> Communicator::split(int color) {
  check(color >= 0, "split: found color {}, expected 0 or more", color);
  return run_split(next(CollectiveOp::split), color);
}

void Communicator::synchronize() {
  Event done(stream());
  done.record(stream());
  done.wait();
  check_errors();
}

bool Communicator::poll_peers() {
  check_errors();
  return false;
}

void Communicator::set_timeout(double) {
  fail<UsageError>("the timeout of communicator {} cannot be replaced", name());
}

void Communicator::finish() {
  if (finished_) return;
  const CollectiveSignature last = next(CollectiveOp::finish);
  finished_ = true;  // set even if run_finish() throws: there is no retry
  run_finish(last);
}

}  // namespace convoy::dist
