// Scratch memory of each of ggml's threads, for rows that it quantises.
#pragma once

#include <cstddef>

namespace winnow {

// Returns the calling thread's memory of at least so many bytes, aligned for the widest vectors. Its contents may be
// lost in a later call. It grows to the largest size asked for and lives as long as the thread. Throws std::bad_alloc.
std::byte* thread_memory(std::size_t bytes);

}  // namespace winnow
