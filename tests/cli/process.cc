#include "cli/process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <stdexcept>

namespace winnow::test {
namespace {

using Clock = std::chrono::steady_clock;

// A pipe that is closed at the end of its scope, also when a test fails.
class Pipe {
 public:
  Pipe() {
    if (pipe2(ends_.data(), O_CLOEXEC) != 0) throw std::runtime_error("pipe2 failed");
  }
  ~Pipe() {
    close_reader();
    close_writer();
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  int reader() const { return ends_[0]; }
  int writer() const { return ends_[1]; }
  void close_reader() { close_end(0); }
  void close_writer() { close_end(1); }

 private:
  void close_end(std::size_t end) {
    if (ends_[end] >= 0) close(ends_[end]);
    ends_[end] = -1;
  }
  std::array<int, 2> ends_{-1, -1};
};

[[noreturn]] void become(const std::vector<std::string>& arguments, const ProcessOptions& options, int in, int out,
                         int err) {
  dup2(in, STDIN_FILENO);
  dup2(options.output.empty() ? out : open(options.output.c_str(), O_WRONLY | O_CLOEXEC), STDOUT_FILENO);
  dup2(err, STDERR_FILENO);
  std::signal(SIGPIPE, SIG_DFL);
  for (const auto& [name, value] : options.environment) {
    if (value.empty()) {
      unsetenv(name.c_str());
    } else {
      setenv(name.c_str(), value.c_str(), 1);
    }
  }
  if (!options.folder.empty() && chdir(options.folder.c_str()) != 0) _exit(127);
  if (options.address_space > 0) {
    const rlimit limit{options.address_space, options.address_space};
    setrlimit(RLIMIT_AS, &limit);
  }
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  execv(argv[0], argv.data());
  _exit(127);
}

// Appends some bytes to the text. Returns false at the end of the stream.
bool read_some(int descriptor, std::string& text) {
  char bytes[4096];
  const ssize_t count = read(descriptor, bytes, sizeof bytes);
  if (count > 0) text.append(bytes, static_cast<std::size_t>(count));
  return count > 0 || (count < 0 && errno == EINTR);
}

}  // namespace

ProcessResult run_process(const std::vector<std::string>& arguments, const ProcessOptions& options) {
  std::signal(SIGPIPE, SIG_IGN);  // a tool need not read all of its input
  Pipe in, out, err;
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("fork failed");
  if (child == 0) become(arguments, options, in.reader(), out.writer(), err.writer());
  in.close_reader();
  out.close_writer();
  err.close_writer();

  ProcessResult result;
  std::size_t written = 0;
  bool reacted = false, out_open = true, err_open = true;
  const Clock::time_point deadline =
      Clock::now() + std::chrono::milliseconds(static_cast<int>(options.timeout_s * 1e3));
  while (out_open || err_open) {
    if (written == options.input.size()) in.close_writer();
    // poll ignores negative descriptors.
    pollfd polled[] = {{out_open ? out.reader() : -1, POLLIN, 0},
                       {err_open ? err.reader() : -1, POLLIN, 0},
                       {in.writer(), POLLOUT, 0}};
    poll(polled, 3, 50);
    if (Clock::now() > deadline) {
      result.timed_out = true;
      kill(child, SIGKILL);
      break;
    }
    if (polled[0].revents != 0) out_open = read_some(out.reader(), result.out);
    if (polled[1].revents != 0) err_open = read_some(err.reader(), result.err);
    if (polled[2].revents != 0) {
      const ssize_t count = write(in.writer(), options.input.data() + written, options.input.size() - written);
      written = count > 0 ? written + static_cast<std::size_t>(count) : options.input.size();
    }
    if (!reacted && options.react_after > 0 && result.out.size() + result.err.size() >= options.react_after) {
      reacted = true;
      if (options.then_interrupt) kill(child, SIGINT);
      if (options.then_close_output) {
        out.close_reader();
        out_open = false;
      }
    }
  }
  int status = 0;
  rusage usage = {};
  while (wait4(child, &status, 0, &usage) < 0 && errno == EINTR) {
  }
  result.rss_peak_bytes = static_cast<std::size_t>(usage.ru_maxrss) * 1024;
  if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
  return result;
}

}  // namespace winnow::test
