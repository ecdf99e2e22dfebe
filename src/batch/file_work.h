// What is done in the folder for saved contexts on threads of its own, while answers go on: looking for a file, reading
// one, writing one, telling that some were used. One of each at a time.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <future>
#include <string>
#include <vector>

#include "batch/prefix_files.h"
#include "batch/prefix_tree.h"

namespace winnow {

// What of a request's context is in the folder.
struct FileSearch {
  std::uint64_t job = 0;
  std::atomic<bool> is_over = false;
  std::future<std::vector<SavedBeginning>> found;  // last: it waits for the thread, which uses all of the above
};

// On its way into memory, for requests in the queue.
struct FileLoad {
  SavedBeginning file;
  std::string key;
  bool is_context = false;  // the whole context of the request that asked for it
  std::size_t bytes = 0;    // promised to it
  std::atomic<bool> is_wanted = true;
  std::atomic<bool> is_over = false;
  std::future<Session> session;  // last: see above
};

// On its way into the folder. Nobody removes the sequence meanwhile.
struct FileSave {
  PrefixPointer prefix;
  std::atomic<bool> is_over = false;
  std::future<void> result;  // last: see above
};

// Files whose sequences requests have begun with.
struct FileTouch {
  struct Used {
    std::uint64_t prefix = 0;  // its id
    std::string path;
  };
  std::vector<Used> used;
  std::atomic<bool> is_over = false;
  std::future<std::vector<std::uint64_t>> gone;  // ids of those that are not there any more; last: see above
};

}  // namespace winnow
