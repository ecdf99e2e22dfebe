// Answers of /v1/responses, kept in memory for later requests that continue them.
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

// A store that removes the least recently used responses first. Thread-safe.
class ResponseStore {
 public:
  explicit ResponseStore(std::size_t most_bytes = std::size_t{64} << 20, std::size_t most = 4096)
      : most_bytes_(most_bytes), most_(most) {}

  // Stores a response, unless it alone is larger than the limit.
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
