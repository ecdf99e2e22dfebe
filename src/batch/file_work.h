// Tasks on the folder of saved prefixes, each on a thread of its own while answers go on: a search for files, the load
// of one, the save of one, and touching those that were used. At most one of each is under way.
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

// A search for files with prefixes of a request's context.
struct FileSearch {
  std::uint64_t job = 0;
  std::atomic<bool> is_over = false;
  std::future<std::vector<SavedPrefix>>
      found;  // last: its destructor waits for the thread, which uses all of the above
};

// The load of a file that holds a prefix of waiting requests.
struct FileLoad {
  SavedPrefix file;
  std::string key;
  bool is_context = false;         // it is the whole context of the request that asked for it
  std::size_t bytes_reserved = 0;  // for its session
  std::atomic<bool> is_wanted = true;
  std::atomic<bool> is_over = false;
  std::future<Session> session;  // last: see above
};

// The save of a prefix, which is not removed meanwhile.
struct FileSave {
  PrefixPointer prefix;
  std::atomic<bool> is_over = false;
  std::future<void> result;  // last: see above
};

// A task that sets the time of last use of files whose prefixes requests have hit.
struct FileTouch {
  struct Used {
    std::uint64_t prefix = 0;  // the id of its KeptPrefix
    std::string path;
  };
  std::vector<Used> used;
  std::atomic<bool> is_over = false;
  std::future<std::vector<std::uint64_t>> gone;  // ids of prefixes whose file was removed; last: see above
};

}  // namespace winnow
