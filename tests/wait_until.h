// Waits for what other threads do.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <source_location>
#include <thread>

namespace winnow::test {

// Waits until the condition has held once: what it asks for may take part in what it is asked of, so that the next
// answer can be another one (a connection that asks for room takes some). Fails the test after a minute.
inline void wait_until(const std::function<bool()>& condition,
                       const std::source_location& where = std::source_location::current()) {
  using Clock = std::chrono::steady_clock;
  for (const auto end = Clock::now() + std::chrono::minutes(1); Clock::now() < end;) {
    if (condition()) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  ADD_FAILURE_AT(where.file_name(), static_cast<int>(where.line()))
      << "what was waited for did not come true in a minute";
}

}  // namespace winnow::test
