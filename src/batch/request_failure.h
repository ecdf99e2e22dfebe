// A request's failure, taken from the exception that is being handled.
#pragma once

#include <string>

#include "winnow/error.h"

namespace winnow {

struct RequestFailure {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
};

// Returns the failure of the exception that is being handled, of whatever type: callbacks and scorers are foreign code,
// and nothing that they throw may end the batch's thread. Must be called within a catch block.
RequestFailure failure_in_flight();

}  // namespace winnow
