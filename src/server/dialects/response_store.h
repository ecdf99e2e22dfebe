// Answers of /v1/responses that later requests go on from, in memory.
#pragma once

#include <cstddef>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include "server/api_error.h"

namespace winnow::server {

struct StoredResponse {
  std::string id;
  std::string messages;  // JSON: the conversation with the answer, as messages of OpenAI's chats
  std::string response;  // JSON: as it was answered
};

// The least recently used go first. Thread-safe.
class ResponseStore {
 public:
  explicit ResponseStore(std::size_t most_bytes = std::size_t{64} << 20, std::size_t most = 4096)
      : most_bytes_(most_bytes), most_(most) {}

  // One that is larger than all that may be kept is not.
  void put(StoredResponse response);
  std::optional<StoredResponse> find(const std::string& id);
  bool remove(const std::string& id);
  std::size_t n_bytes() const;

 private:
  using Entries = std::list<StoredResponse>;
  static std::size_t bytes_of(const StoredResponse& response);
  void erase(Entries::iterator entry);

  const std::size_t most_bytes_, most_;
  mutable std::mutex mutex_;
  Entries entries_;  // the most recently used first
  std::unordered_map<std::string, Entries::iterator> by_id_;
  std::size_t n_bytes_ = 0;
};

}  // namespace winnow::server
