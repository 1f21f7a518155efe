// The simulated machines: hosts, processes with their descriptors, and the network between the hosts.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/simulation/scheduler.h"

namespace simulation {

struct Host;
struct Memory;
struct RankRecord;
struct Socket;

/// An open file description: what descriptors refer to.
struct File {
  virtual ~File() = default;
  /// Returns the events of poll() that hold now.
  virtual short ready() const { return 0; }
  /// Ends what the last descriptor has kept open. `by_kill` if its process was killed.
  virtual void close() {}
  /// Ends the waits of all coroutines that poll this file.
  void notify();
  int references = 1;
  bool is_blocking = false;  // whether read() and write() wait
  std::vector<Coroutine*> waiters;
};

/// A process of a host. Its coroutines are its threads.
struct Process {
  struct Frozen {
    Coroutine* coroutine;
    std::uint64_t wait;
    bool is_wake;
  };

  std::string name;  // for traces: "rank 3"
  int pid = 0;
  Host* host = nullptr;
  std::vector<Coroutine*> coroutines;
  std::set<int> descriptors;
  std::multiset<Memory*> mappings;
  bool is_stopped = false, has_ended = false;
  bool was_reported_stopped = false;  // by waitpid()
  int status = 0;                     // as waitpid() returns it, once it has ended
  Time ended_at = kNever, reaped_at = kNever;
  Time resumed_at = 0;                    // last time
  std::array<File*, 3> streams{};         // 0, 1 and 2; null: those of this program
  Process* parent = nullptr;              // null: none
  bool dies_with_parent = false;          // by SIGKILL
  std::unique_ptr<SavedStack> forked_at;  // until execve(): where the parent goes on
  std::vector<std::function<void()>> on_end;
  std::function<void(Host*, const std::string&)>
      on_send;  // sees the bytes of send(), and to whom; may be empty
  std::function<void(int)>
      on_unused_port;               // called when it closes a socket that listens at this port; may be empty
  RankRecord* record = nullptr;     // of a rank
  int stop_signal = 0;              // that the program should act on, such as SIGTERM
  double io_bytes = 0;              // read and written so far
  std::vector<Frozen> frozen;       // events while it was stopped
  std::vector<char> own_variables;  // see enter()
  std::vector<std::string> variables;
  std::vector<char*> environment;

  /// Sets the environment of a process that starts.
  void set_environment(const std::map<std::string, std::string>& values);
  void set_environment(std::vector<std::string> lines);
  /// Makes the globals of the C library, and those of Convoy that belong to a process, those of this one.
  void enter();
  /// Ends the process: closes its descriptors, and runs none of its coroutines any more.
  void end(int wait_status);
  void stop();
  void resume();
};

/// A machine, with one network address.
struct Host {
  std::string name;
  std::uint32_t address = 0;  // IPv4, in the order of this machine
  std::vector<Process*> processes;
  std::map<int, Socket*> listeners;  // by port
  int next_port = 33000;
  double slowness = 1;  // factor of the time that a system call takes
  int freezes = 0;      // faults that let no process run
};

/// The way between two hosts.
struct Link {
  Time latency = 100 * kMicrosecond;
  double bytes_per_second = 1e9;
  double loss = 0;  // probability that a segment is sent again, after a while
  int cuts = 0;     // faults that keep it from carrying anything
  bool is_down() const { return cuts > 0; }
};

/// The bytes, and the end, that travel in one direction of a connection.
struct Pipe {
  struct Segment {
    Time arrives;
    std::string bytes;
    enum class Kind : std::uint8_t { data, end, reset } kind;
  };
  Host *from = nullptr, *to = nullptr;
  Socket *reader = nullptr, *writer = nullptr;  // null once closed
  std::list<Segment> in_flight;
  std::string received;
  std::size_t read = 0;  // of `received`
  std::size_t bytes_in_flight = 0;
  Time last_arrival = 0;
  bool is_scheduled = false, has_ended = false, was_reset = false, was_closed = false;
  std::size_t unread() const { return received.size() - read; }
};

/// A TCP socket.
struct Socket final : File {
  enum class State : std::uint8_t { unbound, bound, listening, connecting, connected, failed };
  State state = State::unbound;
  bool is_v6 = false;
  Host* host = nullptr;
  std::uint32_t local_address = 0, remote_address = 0;
  int local_port = 0, remote_port = 0;
  int error = 0;
  std::size_t backlog = 0;
  std::list<Socket*> pending;  // connections that accept() has not returned yet
  std::shared_ptr<Pipe> in, out;

  short ready() const override;
  void close() override;
};

/// A counter of eventfd().
struct Counter final : File {
  std::uint64_t value = 0;
  short ready() const override;
};

/// A file of memfd_create(), which several descriptions may share.
struct Memory {
  std::uint64_t inode = 0;
  std::size_t bytes = 0;
  char* data = nullptr;
  int mappings = 0, descriptions = 0;
  std::map<std::int64_t, File*> locks;  // by byte
  void release_if_unused();
};
/// A pipe to nowhere that keeps what is written.
struct TextFile final : File {
  std::string text;
  short ready() const override;
};
/// A process, ready once it has ended: pidfd_open().
struct ProcessFile final : File {
  Process* process = nullptr;
  short ready() const override;
};
struct MemoryFile final : File {
  Memory* memory = nullptr;
  void close() override;
};

/// All hosts and what connects them.
class Network {
 public:
  Host* add_host(const std::string& name);
  Process* add_process(Host* host, const std::string& name);
  const std::vector<std::unique_ptr<Host>>& hosts() const { return hosts_; }
  const std::vector<std::unique_ptr<Process>>& processes() const { return processes_; }
  /// Returns null if there is none.
  Process* find_process(int pid) const;
  Host* find_host(std::uint32_t address, Host* from) const;

  /// Returns the link between two hosts; all processes of one host share a link without faults.
  Link& link(const Host* a, const Host* b);
  /// Cuts a link, or ends such a cut. Bytes that were on their way arrive once no cut is left.
  void cut(const Host* a, const Host* b, bool begins);

  void connect(Socket* socket, std::uint32_t address, int port, int attempt);
  /// Sends bytes, or the end, through a pipe.
  void send(const std::shared_ptr<Pipe>& pipe, std::string bytes, Pipe::Segment::Kind kind);
  /// Returns a pair of connected sockets, which block, of one host.
  std::pair<Socket*, Socket*> make_pair(Host* host);
  /// Makes this end of a connection one of another host.
  static void move(Socket* socket, Host* host);

  /// Returns a new descriptor of a process.
  int open(Process* process, File* file);
  /// Gives a process the descriptor of another one, under the same number.
  void inherit(Process* process, int descriptor);
  /// Returns the file of a descriptor; null if it is none of the simulation.
  File* file(int descriptor) const;
  /// Returns whether a simulated process has the descriptor.
  bool has(int descriptor) const { return file(descriptor) != nullptr; }
  void close(Process* process, int descriptor);
  /// Ends a reference to a file.
  static void release(File* file);

  /// Starts the program of a process that calls execve(), with these arguments.
  std::function<void(Process*, const std::vector<std::string>&)> execute;
  /// Called with each line of the trace, which begins with the virtual time.
  std::function<void(const std::string&)> trace;
  void note(const std::string& text) const {
    if (trace) trace(text);
  }

  std::set<Memory*> memories;
  int running = 0;  // processes
  std::uint64_t messages = 0, connections = 0;
  static constexpr int kFirstDescriptor = 1 << 20;
  static constexpr std::size_t kBufferBytes = std::size_t{256} << 10;

 private:
  void deliver(const std::shared_ptr<Pipe>& pipe);
  void schedule(const std::shared_ptr<Pipe>& pipe, Time at);

  std::vector<std::unique_ptr<Host>> hosts_;
  std::vector<std::unique_ptr<Process>> processes_;
  std::map<std::pair<const Host*, const Host*>, Link> links_;
  std::vector<std::shared_ptr<Pipe>> waiting_;  // for links that are down
  struct Open {
    File* file = nullptr;
    int processes = 0;  // that have the descriptor
  };
  std::vector<Open> files_;  // by descriptor
  Process* entered_ = nullptr;
  friend struct Process;
};

/// Returns the network of the simulation; null outside of one.
Network* network();
void set_network(Network* network);

}  // namespace simulation
