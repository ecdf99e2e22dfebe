// Turns winnow's errors into Python's: the classes of python/winnow/errors.py, by code.
#pragma once

namespace winnow::python {

// Registers a translator: a winnow::Error that reaches Python is then one of those classes.
void translate_errors();

}  // namespace winnow::python
