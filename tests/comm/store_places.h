// Places for stores of either kind, and members that come to them.
#pragma once

#include <filesystem>
#include <memory>

#include "comm/file_store.h"
#include "comm/tcp_store.h"
#include "tests/support/free_port.h"
#include "tests/support/temp_folder.h"

namespace convoy::testing {

inline constexpr double kPatience = 40;  // seconds, for what comes soon

struct Place {
  virtual ~Place() = default;
  virtual std::unique_ptr<Store> open_as(const StoreMember& member, double seconds) const = 0;
  std::unique_ptr<Store> open(int rank, int world = 2) const {
    return open_as({rank, world, "job"}, kPatience);
  }
};

struct TcpPlace : Place {
  Endpoint endpoint{"127.0.0.1", free_port()};
  std::unique_ptr<Store> open_as(const StoreMember& member, double seconds) const override {
    return std::make_unique<TcpStore>(endpoint, member, Deadline(seconds));
  }
};

struct FilePlace : Place {
  TempFolder folder;
  std::filesystem::path path = folder.path() / "meeting";
  std::unique_ptr<Store> open_as(const StoreMember& member, double seconds) const override {
    return std::make_unique<FileStore>(path.string(), member, Deadline(seconds));
  }
};

}  // namespace convoy::testing
