#include "tests/simulation/machine.h"

#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

// The variables of Convoy that belong to a process (per_process_variables.cpp), between these symbols of the linker.
extern "C" char __start_per_process[], __stop_per_process[];

namespace simulation {
namespace {

constexpr Time kRetransmission = 200 * kMillisecond;
constexpr Time kLoopbackLatency = 10 * kMicrosecond;
constexpr Time kMaxRetry = 16 * kSecond;

Network* g_network = nullptr;

std::vector<char>& initial_variables() {
  static std::vector<char> variables(__start_per_process, __stop_per_process);
  return variables;
}

}  // namespace

Network* network() { return g_network; }
void set_network(Network* network) {
  initial_variables();
  g_network = network;
}

void File::notify() {
  for (Coroutine* const waiter : waiters) scheduler()->wake(waiter);
}

void Process::set_environment(const std::map<std::string, std::string>& values) {
  std::vector<std::string> lines;
  for (const auto& [variable, value] : values) lines.push_back(variable + "=" + value);
  set_environment(std::move(lines));
}

void Process::set_environment(std::vector<std::string> lines) {
  variables = std::move(lines);
  environment.clear();
  for (std::string& line : variables) environment.push_back(line.data());
  environment.push_back(nullptr);
  if (g_network->entered_ == this) environ = environment.data();
}

void Process::enter() {
  Process*& entered = g_network->entered_;
  if (entered == this) return;
  const auto bytes = static_cast<std::size_t>(__stop_per_process - __start_per_process);
  if (entered != nullptr) entered->own_variables.assign(__start_per_process, __stop_per_process);
  if (own_variables.empty()) own_variables = initial_variables();
  std::memcpy(__start_per_process, own_variables.data(), bytes);
  environ = environment.data();
  entered = this;
}

void Process::end(int wait_status) {
  if (has_ended) return;
  g_network->note(name + (wait_status > 0 && wait_status < 128 ? " is killed" : " exits") + ", status " +
                  std::to_string(wait_status));
  has_ended = true;
  --g_network->running;
  status = wait_status;
  ended_at = scheduler()->now();
  reaped_at = ended_at + static_cast<Time>(scheduler()->random(kSecond));
  for (const int descriptor : std::set<int>(descriptors)) g_network->close(this, descriptor);
  for (File*& stream : streams)
    if (File* const file = std::exchange(stream, nullptr)) Network::release(file);
  for (Memory* const memory : std::exchange(mappings, {})) {
    --memory->mappings;
    memory->release_if_unused();
  }
  for (const auto& process : g_network->processes())
    if (process->parent == this && process->dies_with_parent) process->end(SIGKILL);
  for (const auto& action : std::exchange(on_end, {})) action();
}

void Process::stop() {
  if (has_ended) return;
  g_network->note(name + " is stopped");
  is_stopped = true;
}

void Process::resume() {
  if (has_ended || !is_stopped) return;
  g_network->note(name + " continues");
  is_stopped = false;
  resumed_at = scheduler()->now();
  scheduler()->thaw(*this);
}

short Socket::ready() const {
  if (state == State::listening) return pending.empty() ? 0 : POLLIN;
  if (state == State::failed) return POLLIN | POLLOUT | POLLERR | POLLHUP;
  if (state != State::connected) return 0;
  short events = 0;
  if (in->unread() > 0 || in->has_ended || in->was_reset) events |= POLLIN;
  if (in->was_reset) events |= POLLERR | POLLHUP;
  if (out->bytes_in_flight + out->unread() < Network::kBufferBytes || in->was_reset) events |= POLLOUT;
  return events;
}

void Socket::close() {
  if (state == State::listening) {
    host->listeners.erase(local_port);
    for (Socket* const client : std::exchange(pending, {})) client->close();
  }
  if (in == nullptr) return;
  const bool discards = in->unread() > 0;
  in->reader = nullptr;
  out->writer = nullptr;
  if (!in->was_reset)
    g_network->send(out, "", discards ? Pipe::Segment::Kind::reset : Pipe::Segment::Kind::end);
}

short Counter::ready() const { return static_cast<short>(value > 0 ? POLLIN | POLLOUT : POLLOUT); }

short TextFile::ready() const { return POLLOUT; }
short ProcessFile::ready() const { return static_cast<short>(process->has_ended ? POLLIN : 0); }

void Memory::release_if_unused() {
  if (mappings > 0 || descriptions > 0) return;
  g_network->memories.erase(this);  // so that munmap() is that of the C library
  if (data != nullptr) ::munmap(data, bytes);
  delete this;
}

void MemoryFile::close() {
  std::erase_if(memory->locks, [this](const auto& lock) { return lock.second == this; });
  --memory->descriptions;
  memory->release_if_unused();
}

Host* Network::add_host(const std::string& name) {
  hosts_.push_back(std::make_unique<Host>());
  hosts_.back()->name = name;
  hosts_.back()->address = 0x0a000001 + static_cast<std::uint32_t>(hosts_.size());  // 10.0.0.2 and so on
  return hosts_.back().get();
}

Process* Network::add_process(Host* host, const std::string& name) {
  processes_.push_back(std::make_unique<Process>());
  Process* const process = processes_.back().get();
  process->name = name;
  ++running;
  process->pid = 1000 + static_cast<int>(processes_.size());
  process->host = host;
  host->processes.push_back(process);
  return process;
}

Process* Network::find_process(int pid) const {
  const std::size_t index = static_cast<std::size_t>(pid) - 1001;
  return index < processes_.size() ? processes_[index].get() : nullptr;
}

Host* Network::find_host(std::uint32_t address, Host* from) const {
  if (address >> 24 == 127) return from;
  for (const auto& host : hosts_)
    if (host->address == address) return host.get();
  return nullptr;
}

Link& Network::link(const Host* a, const Host* b) {
  const auto [found, is_new] = links_.try_emplace(std::minmax(a, b));
  if (is_new && a == b) found->second = {.latency = kLoopbackLatency, .bytes_per_second = 4e9};
  return found->second;
}

void Network::cut(const Host* a, const Host* b, bool begins) {
  if (a == b) return;
  link(a, b).cuts += begins ? 1 : -1;
  if (link(a, b).is_down()) return;
  const std::vector<std::shared_ptr<Pipe>> waiting = std::exchange(waiting_, {});
  for (const std::shared_ptr<Pipe>& pipe : waiting)  // those of other links wait again
    schedule(pipe, scheduler()->now() + static_cast<Time>(scheduler()->random(5 * kRetransmission)));
}

void Network::connect(Socket* socket, std::uint32_t address, int port, int attempt) {
  Host* const from = socket->host;
  Host* const to = find_host(address, from);
  if (to == nullptr) return;  // the packets are lost
  const Link way = link(from, to);
  const auto retry = [=, this] {
    scheduler()->at(scheduler()->now() + std::min(kSecond << attempt, kMaxRetry), [=, this] {
      if (socket->references > 0 && socket->state == Socket::State::connecting)
        connect(socket, address, port, attempt + 1);
    });
  };
  if (way.is_down()) return retry();
  scheduler()->at(scheduler()->now() + way.latency, [=, this] {
    if (socket->references == 0) return;
    const auto answer = [=, this](int error) {
      scheduler()->at(scheduler()->now() + way.latency, [=, this] {
        if (socket->references == 0) return;
        if (link(from, to).is_down()) return;
        if (socket->state != Socket::State::connecting) return;
        socket->error = error;
        socket->state = error == 0 ? Socket::State::connected : Socket::State::failed;
        socket->notify();
      });
    };
    const auto found = to->listeners.find(port);
    if (found == to->listeners.end()) return answer(ECONNREFUSED);
    Socket* const listener = found->second;
    if (listener->pending.size() >= listener->backlog) return retry();
    ++connections;
    auto* const accepted = new Socket;
    accepted->host = to;
    accepted->state = Socket::State::connected;
    accepted->is_v6 = listener->is_v6;
    accepted->local_address = address;
    accepted->local_port = port;
    accepted->remote_address = socket->local_address;
    accepted->remote_port = socket->local_port;
    accepted->in = socket->out = std::make_shared<Pipe>();
    accepted->out = socket->in = std::make_shared<Pipe>();
    *socket->out = {.from = from, .to = to, .reader = accepted, .writer = socket};
    *socket->in = {.from = to, .to = from, .reader = socket, .writer = accepted};
    listener->pending.push_back(accepted);
    listener->notify();
    answer(0);
  });
}

std::pair<Socket*, Socket*> Network::make_pair(Host* host) {
  auto *const a = new Socket, *const b = new Socket;
  for (Socket* const socket : {a, b}) {
    socket->host = host;
    socket->state = Socket::State::connected;
    socket->is_blocking = true;
    socket->in = std::make_shared<Pipe>();
  }
  a->out = b->in;
  b->out = a->in;
  *a->out = {.from = host, .to = host, .reader = b, .writer = a};
  *b->out = {.from = host, .to = host, .reader = a, .writer = b};
  return {a, b};
}

void Network::move(Socket* socket, Host* host) {
  socket->host = host;
  socket->in->to = socket->out->from = host;
}

void Network::send(const std::shared_ptr<Pipe>& pipe, std::string bytes, Pipe::Segment::Kind kind) {
  if (pipe->was_closed) return;
  pipe->was_closed = kind != Pipe::Segment::Kind::data;
  messages += kind == Pipe::Segment::Kind::data ? 1 : 0;
  const Link& way = link(pipe->from, pipe->to);
  Time arrives = scheduler()->now() + way.latency +
                 static_cast<Time>(static_cast<double>(bytes.size()) / way.bytes_per_second * 1e9);
  for (Time again = kRetransmission;
       way.loss > 0 && static_cast<double>(scheduler()->random(1000)) < 1000 * way.loss; again *= 2)
    arrives += again;
  pipe->last_arrival = std::max(arrives, pipe->last_arrival);
  pipe->bytes_in_flight += bytes.size();
  pipe->in_flight.push_back({pipe->last_arrival, std::move(bytes), kind});
  if (!pipe->is_scheduled) schedule(pipe, pipe->last_arrival);
}

void Network::schedule(const std::shared_ptr<Pipe>& pipe, Time at) {
  pipe->is_scheduled = true;
  scheduler()->at(at, [this, pipe] { deliver(pipe); });
}

void Network::deliver(const std::shared_ptr<Pipe>& pipe) {
  using Kind = Pipe::Segment::Kind;
  if (link(pipe->from, pipe->to).is_down()) {
    waiting_.push_back(pipe);
    return;
  }
  pipe->is_scheduled = false;
  bool has_news = false;
  while (!pipe->in_flight.empty() && pipe->in_flight.front().arrives <= scheduler()->now()) {
    Pipe::Segment& segment = pipe->in_flight.front();
    pipe->bytes_in_flight -= segment.bytes.size();
    if (pipe->reader != nullptr) {
      has_news = true;
      pipe->received += segment.bytes;
      pipe->has_ended |= segment.kind == Kind::end;
      pipe->was_reset |= segment.kind == Kind::reset;
    } else if (segment.kind == Kind::data && pipe->writer != nullptr) {
      // The reader has closed its socket: its host refuses the bytes.
      const std::shared_ptr<Pipe> back = pipe->writer->in;
      back->was_closed = false;
      send(back, "", Kind::reset);
    }
    pipe->in_flight.pop_front();
  }
  if (has_news && pipe->reader != nullptr) pipe->reader->notify();
  if (!pipe->in_flight.empty()) schedule(pipe, pipe->in_flight.front().arrives);
}

int Network::open(Process* process, File* file) {
  files_.push_back({file, 1});
  const int descriptor = kFirstDescriptor + static_cast<int>(files_.size()) - 1;
  process->descriptors.insert(descriptor);
  return descriptor;
}

void Network::inherit(Process* process, int descriptor) {
  if (!process->descriptors.insert(descriptor).second) return;
  ++files_[static_cast<std::size_t>(descriptor) - kFirstDescriptor].processes;
}

File* Network::file(int descriptor) const {
  if (descriptor >= 0 && descriptor < 3) {
    const Coroutine* const caller = scheduler()->current();
    return caller == nullptr ? nullptr : caller->process->streams[static_cast<std::size_t>(descriptor)];
  }
  const auto index = static_cast<std::size_t>(descriptor) - kFirstDescriptor;
  return descriptor >= kFirstDescriptor && index < files_.size() ? files_[index].file : nullptr;
}

void Network::release(File* file) {
  if (--file->references == 0) file->close();  // not deleted: events may refer to it
}

void Network::close(Process* process, int descriptor) {
  if (process->descriptors.erase(descriptor) == 0) return;
  Open& open = files_[static_cast<std::size_t>(descriptor) - kFirstDescriptor];
  if (--open.processes > 0) return;
  File* const file = std::exchange(open.file, nullptr);
  const auto* const socket = dynamic_cast<Socket*>(file);
  const int unused = socket != nullptr && socket->state == Socket::State::listening ? socket->local_port : 0;
  release(file);
  if (unused != 0 && process->on_unused_port) process->on_unused_port(unused);
}

}  // namespace simulation
