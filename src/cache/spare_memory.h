// Memory that a cache can do without: where there is none, entries stay as they are until the next time.
#pragma once

#include <new>

#include "winnow/error.h"

namespace winnow {

// Runs what takes such memory; returns whether there was any.
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
