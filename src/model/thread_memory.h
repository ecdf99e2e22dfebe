// Memory of one of ggml's threads for rows that it quantises.
#pragma once

#include <cstddef>

namespace winnow {

// At least so many bytes, aligned for the widest vectors; what was in it may be gone. It grows to the largest size
// asked for and lives as long as the thread. Throws std::bad_alloc.
std::byte* thread_memory(std::size_t bytes);

}  // namespace winnow
