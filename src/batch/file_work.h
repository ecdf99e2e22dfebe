// A file of a kept sequence that is read or written on a thread of its own, while answers go on. One of each at a time.
#pragma once

#include <atomic>
#include <cstddef>
#include <future>
#include <string>

#include "batch/prefix_files.h"
#include "batch/prefix_tree.h"

namespace winnow {

// On its way into memory, for requests in the queue.
struct FileLoad {
  SavedBeginning file;
  std::string key;
  bool is_context = false;  // the whole context of the request that asked for it
  std::size_t bytes = 0;    // promised to it
  std::atomic<bool> is_wanted = true;
  std::atomic<bool> is_over = false;
  std::future<Session> session;  // last: it waits for the thread, which uses all of the above
};

// On its way into the folder. Nobody removes the sequence meanwhile.
struct FileSave {
  PrefixPointer prefix;
  std::atomic<bool> is_over = false;
  std::future<void> result;  // likewise
};

}  // namespace winnow
