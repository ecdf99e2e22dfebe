// Runs the tool as a person would: a process with its three streams.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace winnow::test {

using Words = std::vector<std::string>;  // of a command line

struct ProcessOptions {
  std::string input;                               // the standard input, closed after it
  std::map<std::string, std::string> environment;  // added to the test's own; "" removes a variable
  std::string folder;                              // the working directory; empty: the test's own
  std::string output;                              // a file in the place of the standard output's pipe
  std::size_t address_space = 0;                   // bytes that the process may map; 0: no limit
  double timeout_s = 600;                          // long, so that a busy machine does not fail the test
  // After this many bytes of both outputs together ...
  std::size_t react_after = 0;
  bool then_interrupt = false;     // ... send SIGINT once
  bool then_close_output = false;  // ... close the reading end of the standard output
};

struct ProcessResult {
  int exit_code = -1;  // -1: ended by a signal
  int signal = 0;
  bool timed_out = false;
  std::size_t rss_peak_bytes = 0;
  std::string out, err;
};

ProcessResult run_process(const Words& arguments, const ProcessOptions& options = {});

}  // namespace winnow::test
