#include "batch/request_failure.h"

#include <exception>

namespace winnow {

RequestFailure failure_in_flight() {
  try {
    throw;
  } catch (const Error& error) {
    return {.code = error.code(), .message = error.what()};
  } catch (const std::exception& error) {
    return {.message = error.what()};
  } catch (...) {
    return {.message = "a callback or scorer threw an object that is not a std::exception: throw a winnow::Error"};
  }
}

}  // namespace winnow
