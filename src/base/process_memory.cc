#include "base/process_memory.h"

#include <fstream>
#include <string>

namespace winnow {
namespace {

// The number of a line "key:   123 kB", in bytes.
std::size_t kilobyte_field(const char* path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(key)) return std::stoull(line.substr(key.size())) * 1024;
  }
  return 0;
}

}  // namespace

std::size_t rss_peak_bytes() { return kilobyte_field("/proc/self/status", "VmHWM:"); }

void reset_rss_peak() { std::ofstream("/proc/self/clear_refs") << "5"; }

std::size_t memory_available() { return kilobyte_field("/proc/meminfo", "MemAvailable:"); }

std::size_t memory_total() { return kilobyte_field("/proc/meminfo", "MemTotal:"); }

}  // namespace winnow
