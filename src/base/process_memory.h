// Memory of this process and of the machine, from /proc.
#pragma once

#include <cstddef>

namespace winnow {

std::size_t rss_peak_bytes();    // highest resident size so far; 0 where the system does not tell
void reset_rss_peak();           // starts a new peak at the present size, where the system allows it
std::size_t memory_available();  // what can be had without swapping, and within the limit of a container
std::size_t memory_total();
std::size_t address_space_left();  // of a limit that was set for this process (ulimit -v)

}  // namespace winnow
