// A communicator that counts the collectives of another one.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "convoy/comm/core/communicator.h"

namespace convoy::testing {

/// Forwards all calls to another communicator. Counts all collectives, also those of communicators that it is
/// split into.
class CountingCommunicator final : public dist::Communicator {
 public:
  CountingCommunicator(std::unique_ptr<dist::Communicator> inner, std::atomic<int>& launches)
      : dist::Communicator(inner->rank(), inner->size(), inner->context()),
        inner_(std::move(inner)),
        launches_(launches) {}

  std::string name() const override { return inner_->name(); }
  Stream stream() override { return inner_->stream(); }
  void check_errors() override { inner_->check_errors(); }
  bool poll_peers() override { return inner_->poll_peers(); }
  void set_timeout(double seconds) override { inner_->set_timeout(seconds); }
  void abort(const std::string& reason) noexcept override { inner_->abort(reason); }

 private:
  void launch(const dist::CollectiveSignature& collective, ConstView in, View out) override {
    switch (collective.op) {
      case dist::CollectiveOp::reduce_scatter: return counted().reduce_scatter(in, out);
      case dist::CollectiveOp::all_gather: return counted().all_gather(in, out);
      case dist::CollectiveOp::broadcast: return counted().broadcast(out, collective.root);
      default: return counted().all_reduce(out);
    }
  }
  void run_barrier(const dist::CollectiveSignature&) override { counted().barrier(); }
  std::vector<std::string> run_gather_object(const dist::CollectiveSignature&,
                                             const std::string& local) override {
    return counted().gather_object(local);
  }
  std::unique_ptr<dist::Communicator> run_split(const dist::CollectiveSignature&, int color) override {
    return std::make_unique<CountingCommunicator>(counted().split(color), launches_);
  }
  void run_finish(const dist::CollectiveSignature&) override { counted().finish(); }

  dist::Communicator& counted() {
    ++launches_;
    return *inner_;
  }

  std::unique_ptr<dist::Communicator> inner_;
  std::atomic<int>& launches_;
};

}  // namespace convoy::testing
