#include "bind_errors.h"

#include <nanobind/nanobind.h>

#include "winnow/error.h"

namespace winnow::python {
namespace {

namespace nb = nanobind;

const char* class_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "InvalidArgument";
    case ErrorCode::kNotFound:
      return "NotFound";
    case ErrorCode::kBadFile:
      return "BadFile";
    case ErrorCode::kUnsupported:
      return "Unsupported";
    case ErrorCode::kOutOfMemory:
      return "OutOfMemory";
    case ErrorCode::kContextFull:
      return "ContextFull";
    case ErrorCode::kCancelled:
      return "Cancelled";
    case ErrorCode::kIo:
      return "IoError";
    case ErrorCode::kInternal:
      break;
  }
  return "InternalError";
}

void raise(const std::exception_ptr& pointer, void*) {
  try {
    std::rethrow_exception(pointer);
  } catch (const Error& error) {
    const nb::object type = nb::module_::import_("winnow.errors").attr(class_of(error.code()));
    PyErr_SetString(type.ptr(), error.what());
  }
}

}  // namespace

void translate_errors() { nb::register_exception_translator(raise); }

}  // namespace winnow::python
