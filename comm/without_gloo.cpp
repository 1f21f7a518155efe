// In place of what needs gloo, where the build has none.
#include "comm/gloo_communicator.h"
#include "kernels/runtime/check.h"

namespace convoy {

std::unique_ptr<Communicator> make_gloo_communicator(Rendezvous&, const CommOptions&) {
  fail<UsageError>("--comm gloo: this build has no gloo: install libgloo-dev and configure again");
}

}  // namespace convoy
