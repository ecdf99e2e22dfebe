#include "server/dialects/response_store.h"

#include <iterator>
#include <utility>

namespace winnow::server {

std::size_t ResponseStore::bytes_of(const StoredResponse& response) {
  constexpr std::size_t kEntry = 256;  // bytes of the containers themselves, about
  return kEntry + response.id.size() + response.messages.size() + response.response.size();
}

void ResponseStore::erase(Entries::iterator entry) {
  n_bytes_ -= bytes_of(*entry);
  by_id_.erase(entry->id);
  entries_.erase(entry);
}

void ResponseStore::put(StoredResponse response) {
  const std::size_t n = bytes_of(response);
  const std::lock_guard lock(mutex_);
  if (const auto found = by_id_.find(response.id); found != by_id_.end()) erase(found->second);
  if (n > most_bytes_ || most_ == 0) return;
  while (n_bytes_ + n > most_bytes_ || entries_.size() >= most_) erase(std::prev(entries_.end()));
  n_bytes_ += n;
  entries_.push_front(std::move(response));
  by_id_[entries_.front().id] = entries_.begin();
}

std::optional<StoredResponse> ResponseStore::find(const std::string& id) {
  const std::lock_guard lock(mutex_);
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) return std::nullopt;
  entries_.splice(entries_.begin(), entries_, found->second);
  return *found->second;
}

bool ResponseStore::remove(const std::string& id) {
  const std::lock_guard lock(mutex_);
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) return false;
  erase(found->second);
  return true;
}

std::size_t ResponseStore::n_bytes() const {
  const std::lock_guard lock(mutex_);
  return n_bytes_;
}

}  // namespace winnow::server
