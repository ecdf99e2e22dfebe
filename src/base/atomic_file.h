// A file that is either whole or as it was before.
#pragma once

#include <string>
#include <string_view>

namespace winnow {

// Writes beside `path` under a name that nobody else has (PATH.tmp.PROCESS.NUMBER), and takes the path's place when all
// is on the disk. What is not committed leaves nothing behind, unless the process is killed.
//
// Not thread-safe; any number of them may write to the same path at the same time, and the last commit counts.
class AtomicFile {
 public:
  // `mode` is lessened by the process's umask, as for any new file; 0600 keeps others from reading it. Throws
  // Error(kIo), as all methods do: "cannot write 'PATH'" and why.
  explicit AtomicFile(std::string path, unsigned mode = 0666);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::string_view bytes);
  void write_over_begin(std::string_view bytes);  // what is written next follows these bytes
  void commit();
  // False, and nothing is changed, where there is a file of that name by now.
  bool commit_new();

 private:
  void flush();  // to the disk

  std::string path_, temporary_;
  int descriptor_ = -1;
};

void write_file(const std::string& path, std::string_view content, unsigned mode = 0666);

// Writes everything to a file descriptor. Returns 0, or what errno says of the failure.
int write_all(int descriptor, std::string_view bytes);

}  // namespace winnow
