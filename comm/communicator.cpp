#include "comm/communicator.h"

#include "kernels/runtime/check.h"

namespace convoy {
namespace {

void check_summable(const char* op, DType dtype) {
  check(dtype != DType::u8, "{}: bytes have no sum; sums are of f64, f32, f16, bf16 and i32", op);
}

void check_parts(const char* op, ConstView whole, ConstView part, int ranks) {
  check(whole.dtype == part.dtype, "{}: from and to different types, {} and {}", op, name_of(whole.dtype),
        name_of(part.dtype));
  check(whole.numel() == part.numel() * ranks, "{}: {} elements are not {} on each of {} ranks", op,
        whole.numel(), part.numel(), ranks);
}

}  // namespace

Collective Communicator::next(CollectiveOp op, DType dtype, std::int64_t count, int root) {
  check(!finished_, "a collective was launched after finish()");
  return {.number = launched_++, .op = op, .dtype = dtype, .root = root, .count = count};
}

void Communicator::all_reduce(View data) {
  check_summable("all-reduce", data.dtype);
  launch_all_reduce(next(CollectiveOp::all_reduce, data.dtype, data.numel()), data);
}

void Communicator::reduce_scatter(ConstView in, View out) {
  check_summable("reduce-scatter", in.dtype);
  check_parts("reduce-scatter", in, out, size_);
  launch_reduce_scatter(next(CollectiveOp::reduce_scatter, in.dtype, in.numel()), in, out);
}

void Communicator::broadcast(View data, int root) {
  check(root >= 0 && root < size_, "broadcast: no rank {} among {}", root, size_);
  launch_broadcast(next(CollectiveOp::broadcast, data.dtype, data.numel(), root), data);
}

void Communicator::all_gather(ConstView in, View out) {
  check_parts("all-gather", out, in, size_);
  launch_all_gather(next(CollectiveOp::all_gather, in.dtype, in.numel()), in, out);
}

void Communicator::barrier() { run_barrier(next(CollectiveOp::barrier)); }

std::vector<std::string> Communicator::gather(const std::string& mine) {
  return run_gather(next(CollectiveOp::gather), mine);
}

std::unique_ptr<Communicator> Communicator::split(int color) {
  check(color >= 0, "split: a color is 0 or more, not {}", color);
  return run_split(next(CollectiveOp::split), color);
}

void Communicator::finish() {
  if (finished_) return;
  const Collective last = next(CollectiveOp::finish);
  finished_ = true;  // also where it fails: there is no second try
  run_finish(last);
}

}  // namespace convoy
