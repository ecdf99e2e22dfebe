// winnow's errors as Python's: the classes of python/winnow/errors.py, by code.
#pragma once

namespace winnow::python {

// From now on a winnow::Error that reaches Python is one of those.
void translate_errors();

}  // namespace winnow::python
