// Where a thread is, for the messages about a rank that holds up the others.
#pragma once

#include <sys/types.h>

#include <string>

namespace convoy::dist {

/// Returns the functions of `thread` of this process, innermost first: "read < convoy::load_images < main". A signal
/// handler of the thread finds them, which waits for no lock. If it does not answer within 0.2 s, as in a system
/// call that cannot be interrupted, returns kernel_state_of(). Thread-safe.
std::string stack_of(pid_t thread);

/// Returns "state D, system call 0, in nfs_wait_bit_killable", as far as this process may know it (proc(5)); an
/// empty string if there is no such thread.
std::string kernel_state_of(pid_t process, pid_t thread);

}  // namespace convoy::dist
