// Of exercise failure-1: a disk whose machine may lose its power in each call.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

/// Files in one directory. What write() has written is in the memory of the machine. It may come to the disk
/// at any time, and is there for sure after sync(). In the same way, the names of files are in memory until
/// sync_directory().
class Disk {
 public:
  /// The power fails.
  struct Crash {};

  /// Makes a file, or empties the one that has this name, and writes text to it.
  void write(const std::string& name, const std::string& text) {
    step();
    std::shared_ptr<File>& file = names_[name];
    if (!file) file = std::make_shared<File>();
    file->now = text.substr(0, text.size() / 2);
    step();
    file->now = text;
  }
  /// Waits until the contents of a file are on the disk.
  void sync(const std::string& name) {
    step();
    const auto found = names_.find(name);
    if (found != names_.end()) found->second->durable = found->second->now;
  }
  /// Gives a file another name. If another file has this name, it is gone. At no time is there a moment
  /// without either.
  void rename(const std::string& from, const std::string& to) {
    step();
    const auto found = names_.find(from);
    if (found == names_.end()) return;
    names_[to] = found->second;
    names_.erase(from);
  }
  void remove(const std::string& name) {
    step();
    names_.erase(name);
  }
  /// Waits until the names of the files are on the disk.
  void sync_directory() {
    step();
    durable_names_ = names_;
  }

  /// For the driver: the power fails in this call, counted from 0; write() has two. Returns the calls until
  /// then.
  void crash_in(int call) { calls_ = 0, crash_ = call; }
  int calls() const { return calls_; }
  /// What a file may contain after the power has failed: names and contents may each have come to the disk,
  /// or not. "-" is no file.
  std::vector<std::string> after_crash(const std::string& name) const {
    std::vector<std::string> result;
    for (const auto* names : {&names_, &durable_names_}) {
      const auto found = names->find(name);
      result.push_back(found == names->end() ? "-" : found->second->durable);
      result.push_back(found == names->end() ? "-" : found->second->now);
    }
    return result;
  }
  const std::map<std::string, std::string> names() const {
    std::map<std::string, std::string> result;
    for (const auto& [name, file] : names_) result[name] = file->now;
    return result;
  }

 private:
  struct File {
    std::string now, durable;
  };
  void step() {
    if (calls_++ == crash_) throw Crash();
  }
  std::map<std::string, std::shared_ptr<File>> names_, durable_names_;
  int calls_ = 0, crash_ = -1;
};
