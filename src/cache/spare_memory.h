// Memory that a cache can do without: if there is none, entries stay as they are until the next attempt.
#pragma once

#include <new>

#include "winnow/error.h"

namespace winnow {

// Runs `body`, which takes such memory. Returns false if there was none.
template <typename Body>
bool has_memory_for(const Body& body) {
  try {
    body();
    return true;
  } catch (const std::bad_alloc&) {
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kOutOfMemory) throw;
  }
  return false;
}

}  // namespace winnow
