// The one exception type that crosses winnow's public interface.
#pragma once

#include <stdexcept>
#include <string>

#include "winnow/api.h"

namespace WINNOW_API winnow {

// The kind of an error, for programs; its message is for people.
enum class ErrorCode {
  kInvalidArgument,  // an option, budget or prompt that cannot be used as given
  kNotFound,         // a file, method or option that does not exist
  kBadFile,          // a truncated, corrupt, foreign or unsupported file
  kUnsupported,      // a valid request that this build or machine cannot serve
  kOutOfMemory,      // the page pool's byte limit, or the machine's memory, is exhausted
  kContextFull,      // more tokens than the context holds
  kCancelled,        // a callback asked to stop
  kIo,               // reading or writing failed
  kInternal,         // a broken invariant: a bug in winnow, please report it
};

// An exception for a user's mistake, a bad file or an exhausted limit. what() is one sentence that says what to change.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

}  // namespace winnow
