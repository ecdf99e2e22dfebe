// A writer that replaces a file either completely or not at all.
#pragma once

#include <string>
#include <string_view>

namespace winnow {

// AtomicFile writes a temporary file in the folder of `path` under a unique name (PATH.tmp.PROCESS.NUMBER), and renames
// it to `path` once all bytes are on the disk. The destructor removes the temporary file if it was not committed; it
// remains only if the process is killed. A symbolic link stays, and the file that it names is replaced. Devices and
// pipes are refused, because a rename would put a file in their place.
//
// An object is not thread-safe. Any number of objects may write to the same path at the same time, and the last commit
// counts.
class AtomicFile {
 public:
  // Creates the temporary file. The process's umask is applied to `mode`, as for any new file; 0600 keeps others from
  // reading the file. A file that is replaced keeps of its permissions those that `mode` allows. Throws Error(kIo), as
  // all methods do: "cannot write 'PATH'" and why.
  explicit AtomicFile(std::string path, unsigned mode = 0666);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::string_view bytes);
  void write_over_begin(std::string_view bytes);  // overwrites the first bytes; the next write() follows them
  void commit();
  // Commits only if no file exists at the path by now; otherwise returns false and leaves that file unchanged.
  bool commit_new();

 private:
  void flush();  // writes the bytes to the disk and closes the file

  std::string path_;    // as given, for messages
  std::string target_;  // the file that is written: the path, or what its symbolic links lead to
  std::string temporary_;
  int descriptor_ = -1;
};

void write_file(const std::string& path, std::string_view content, unsigned mode = 0666);

// Writes all bytes to a file descriptor. Returns 0, or errno if writing failed.
int write_all(int descriptor, std::string_view bytes);

}  // namespace winnow
