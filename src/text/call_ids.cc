#include "text/call_ids.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <string>

#include "base/fnv1a.h"

namespace winnow {
namespace {

constexpr std::size_t kMistralLetters = 9;

bool is_short(const std::string& id) {
  const auto is_letter = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  };
  return id.size() == kMistralLetters && std::all_of(id.begin(), id.end(), is_letter);
}

std::string short_id(const std::string& id) {
  if (is_short(id)) return id;
  constexpr std::string_view kAll = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  std::uint64_t rest = Fnv1a().add(id.data(), id.size()).value();
  std::string made;
  for (; made.size() < kMistralLetters; rest /= kAll.size()) made += kAll[rest % kAll.size()];
  return made;
}

}  // namespace

bool wants_short_ids(std::string_view source) {
  for (const char* check : {"length != 9", "length == 9", "length!=9", "length==9"}) {
    if (source.find(check) != std::string_view::npos) return true;
  }
  return false;
}

std::vector<ChatMessage> with_short_ids(std::span<const ChatMessage> messages) {
  std::vector<ChatMessage> made(messages.begin(), messages.end());
  std::deque<std::string> unanswered;  // calls that came without an id
  std::size_t n_calls = 0;
  for (ChatMessage& message : made) {
    for (ChatToolCall& call : message.tool_calls) {
      ++n_calls;
      const bool has_id = !call.id.empty();
      call.id = short_id(has_id ? call.id : "call " + std::to_string(n_calls));
      if (!has_id) unanswered.push_back(call.id);
    }
    if (message.role != "tool") continue;
    if (!message.tool_call_id.empty() || unanswered.empty()) {
      message.tool_call_id = short_id(message.tool_call_id);
    } else {
      message.tool_call_id = unanswered.front();
      unanswered.pop_front();
    }
  }
  return made;
}

}  // namespace winnow
