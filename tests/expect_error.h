// Checks that a call is refused with the right error: its code, and its message or a part of it.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <source_location>
#include <string>

#include "winnow/error.h"

namespace winnow::test {

inline void expect_error(ErrorCode code, const std::string& part, const std::function<void()>& body,
                         const std::source_location& where = std::source_location::current()) {
  const int line = static_cast<int>(where.line());
  try {
    body();
    ADD_FAILURE_AT(where.file_name(), line) << "nothing was refused; expected: " << part;
  } catch (const Error& error) {
    const std::string message = error.what();
    if (error.code() != code || message.find(part) == std::string::npos) {
      ADD_FAILURE_AT(where.file_name(), line)
          << "refused with code " << static_cast<int>(error.code()) << ": " << message << "\nexpected code "
          << static_cast<int>(code) << ": " << part;
    }
  }
}

// Expects body to throw an Error with the code, and returns its message.
inline std::string message_of(ErrorCode code, const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

// Returns the code of the Error that body throws, or kInternal if it throws none.
inline ErrorCode code_of(const std::function<void()>& body, std::string* message = nullptr) {
  try {
    body();
  } catch (const Error& error) {
    if (message != nullptr) *message = error.what();
    return error.code();
  }
  return ErrorCode::kInternal;
}

}  // namespace winnow::test
