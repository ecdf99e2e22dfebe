#include "base/process_memory.h"

#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

namespace winnow {
namespace {

// Returns the number of a line "key:   123 kB" in bytes, or 0 if there is no such line.
std::size_t kilobyte_field(const char* path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(key)) return std::stoull(line.substr(key.size())) * 1024;
  }
  return 0;
}

// Returns the bytes that a container's control group (version 2) leaves: its limit less the memory in use that could
// not be dropped.
std::size_t left_by_container() {
  constexpr std::size_t kUnlimited = std::numeric_limits<std::size_t>::max();
  const std::string folder = "/sys/fs/cgroup/";
  std::size_t limit = 0, used = 0;
  if (!(std::ifstream(folder + "memory.max") >> limit)) return kUnlimited;  // "max"
  if (!(std::ifstream(folder + "memory.current") >> used)) return kUnlimited;
  std::ifstream statistics(folder + "memory.stat");
  std::size_t pages_of_files = 0, value = 0;
  for (std::string key; statistics >> key >> value;) {
    if (key == "file") pages_of_files = value;
  }
  return limit - std::min(limit, used - std::min(used, pages_of_files));
}

}  // namespace

std::size_t rss_peak_bytes() { return kilobyte_field("/proc/self/status", "VmHWM:"); }

void reset_rss_peak() { std::ofstream("/proc/self/clear_refs") << "5"; }

std::size_t memory_available() {
  return std::min(kilobyte_field("/proc/meminfo", "MemAvailable:"), left_by_container());
}

std::size_t address_space_left() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return std::numeric_limits<std::size_t>::max();
  }
  const std::size_t most = limit.rlim_cur;
  return most - std::min(most, kilobyte_field("/proc/self/status", "VmSize:"));
}

std::size_t memory_total() { return kilobyte_field("/proc/meminfo", "MemTotal:"); }

}  // namespace winnow
