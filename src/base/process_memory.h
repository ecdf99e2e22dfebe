// Memory of this process and of the machine, from /proc.
#pragma once

#include <cstddef>

namespace winnow {

std::size_t rss_peak_bytes();    // highest resident size so far; 0 if the system does not report it
void reset_rss_peak();           // starts a new peak at the present size, if the system allows it
std::size_t memory_available();  // available without swapping and within the limit of a container
std::size_t memory_total();
std::size_t address_space_left();  // left of the limit of this process (ulimit -v)

}  // namespace winnow
